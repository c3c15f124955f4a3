"""Compiled Gibbs sampling: one pass over tokens. One thread, no GIL.

It is compiled when this module is imported, unless numba's cache has it; that is while a partition is prepared
(`kernel_cache.load`), not during a clock, and takes some ten seconds. All of it is in one file, since the cache detects
changes of that file only.

Indices are unsigned: a signed index may count from the end, which costs a test.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int32, int64, njit, types, uint64
from numba.extending import intrinsic

#: Number of entries of a word's list that are summed at a time; the capacity of a list is a multiple of it.
STEP = 8
#: A word that occurs in more than one of ROW_FROM topics is summed as a full row, which is vectorised.
ROW_FROM = 4
#: Number of topics per block of the block sums by which a topic is searched.
BLOCK = 64
#: Number of topics of a row that are tested together for a count above 0.
_SCAN = 32
#: Number of tokens by which a word's list is prefetched: it is in no near cache, and the whole draw waits for it.
_AHEAD = 4
#: Number of factors that are multiplied before their logarithm is taken; each is between 1e-12 and 1e12.
_FACTORS = 16


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


# Parts of the pass below, without a test for division by zero. Functions that every token calls are inlined.
_part = njit(nogil=True, error_model="numpy")
_inner = njit(nogil=True, error_model="numpy", forceinline=True)
# Vectorised sums over a run of topics: only here the compiler chooses the order of summation. They write nothing, or
# the order would depend on the addresses of the arrays. They are inlined, so that there is one copy of each: a process
# that compiles would call the one compiled alone, whose order is another than that of the copy in the cached pass, and
# its bits would differ from those of all other processes.
_run_of_topics = njit(nogil=True, error_model="numpy", forceinline=True, fastmath={"reassoc", "contract", "nsz"})


def _fetch_entry(typing_context: Any, array: Any, place: Any) -> Any:
    """Prefetch an entry of an array into the cache; it does not block, and has no other effect."""
    del typing_context

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, of_data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.bitcast(builder.gep(data, [args[1]]), byte), read, keep, of_data])
        return context.get_dummy_value()

    return types.void(array, place), build


_fetch: Any = intrinsic(_fetch_entry)


@_part
def scrambled(x: Any) -> Any:
    """Return the hash of a counter (the finaliser of SplitMix64); different numbers have different hashes."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_part
def uniform(key: Any, counter: Any) -> Any:
    """Return the number in [0, 1) at position `counter` of the random stream of a key."""
    bits = scrambled(key + counter * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)
    return np.float64(bits) * (1.0 / 9007199254740992.0)


@_part
def _padded(n: Any) -> Any:
    return (n + STEP - 1) // STEP * STEP


@_run_of_topics
def _occurring(table: Any, row: Any) -> Any:
    """Return the number of topics in which a word occurs."""
    n = np.int32(0)
    for k in range(np.uint64(table.shape[1])):
        n += np.int32(table[row, k] > 0)
    return n


@_run_of_topics
def _any(table: Any, row: Any, low: Any, high: Any) -> Any:
    found = np.int32(0)
    for k in range(low, high):
        found |= table[row, k]
    return found != 0


@_part
def _lists(table: Any, row_of: Any, place: Any, length: Any) -> Any:
    """Return the topics in which each word occurs, and their counts; from `place[row]` on, `length[row]` of them.

    The rest of a list is filled with a topic that does not exist, with count 0. The list of a word that is not
    resampled is empty; for one that occurs in many topics `length` is -1.
    """
    n_topics = table.shape[1]
    limit = _limit(n_topics)
    drawn = np.zeros(len(table), np.int64)
    for row in row_of:
        drawn[row] += 1
    listed, count = np.empty(len(row_of) + STEP, np.uint32), np.empty(len(row_of) + STEP, np.float32)
    low = np.int64(0)
    for r in range(len(table)):
        row = np.uint64(r)
        place[r] = low
        if drawn[r] == 0:
            continue
        n = np.int64(_occurring(table, row))
        if n > limit:
            length[r] = -1
            continue
        length[r] = n
        # One extra entry: the loop writes an entry before it knows whether it stays.
        room = _padded(min(n + drawn[r], limit))
        if low + room + 1 > len(listed):
            listed, count = _longer(listed, low + room + 1), _longer(count, low + room + 1)
        at = low
        for begin in range(0, n_topics, _SCAN):
            end = min(n_topics, begin + _SCAN)
            if _any(table, row, np.uint64(begin), np.uint64(end)):
                for k in range(begin, end):
                    often = table[row, np.uint64(k)]
                    listed[at], count[at] = k, often
                    at += often > 0
        listed[at : low + room], count[at : low + room] = n_topics, 0.0
        low += room
    return listed, count


@_part
def _longer(array: Any, least: Any) -> Any:
    longer = np.empty(max(2 * len(array), least), array.dtype)
    longer[: len(array)] = array
    return longer


@_part
def _limit(n_topics: Any) -> Any:
    return _padded(max(n_topics // ROW_FROM, 1))


@_inner
def _begin_document(of_document: Any, inverse: Any, alpha: Any, weight: Any) -> Any:
    """Set the weight of each topic in a document; return the sum."""
    for k in range(np.uint64(len(inverse))):
        weight[k] = (of_document[k] + alpha) * inverse[k]
    # Not summed in the loop that writes: where arrays are near each other in memory that one is not vectorised, and the
    # order of the sum, so its last bits, would depend on where they are.
    return np.float64(_sum_weights(weight, np.uint64(0), np.uint64(len(inverse))))


@_inner
def _sum_list(listed: Any, count: Any, low: Any, n: Any, old: Any, weight: Any, sums: Any) -> Any:
    """Return the sum of count x weight over a list, one less of topic `old`; `sums` gets the cumulative sums."""
    whole, none, one = np.float32(0.0), np.float32(0.0), np.float32(1.0)
    for begin in range(0, n, STEP):
        # Eight at a time without a branch, added in pairs: added one by one, each would wait for the one before.
        e = np.uint64(low + begin)
        f, g, h = e + np.uint64(1), e + np.uint64(2), e + np.uint64(3)
        i, j, k, m = e + np.uint64(4), e + np.uint64(5), e + np.uint64(6), e + np.uint64(7)
        a = (count[e] - (one if listed[e] == old else none)) * weight[listed[e]]
        b = (count[f] - (one if listed[f] == old else none)) * weight[listed[f]]
        c = (count[g] - (one if listed[g] == old else none)) * weight[listed[g]]
        d = (count[h] - (one if listed[h] == old else none)) * weight[listed[h]]
        p = (count[i] - (one if listed[i] == old else none)) * weight[listed[i]]
        q = (count[j] - (one if listed[j] == old else none)) * weight[listed[j]]
        r = (count[k] - (one if listed[k] == old else none)) * weight[listed[k]]
        s = (count[m] - (one if listed[m] == old else none)) * weight[listed[m]]
        ab, pq = a + b, p + q
        abcd = ab + (c + d)
        t = np.uint64(begin)
        sums[t], sums[t + np.uint64(1)] = whole + a, whole + ab
        sums[t + np.uint64(2)], sums[t + np.uint64(3)] = whole + (ab + c), whole + abcd
        sums[t + np.uint64(4)], sums[t + np.uint64(5)] = whole + (abcd + p), whole + (abcd + pq)
        sums[t + np.uint64(6)] = whole + (abcd + (pq + r))
        whole += abcd + (pq + (r + s))
        sums[t + np.uint64(7)] = whole
    return whole


@_inner
def _find_listed(x: Any, n: Any, sums: Any) -> Any:
    """Return the entry of a list at which its cumulative sum exceeds x, without a branch."""
    entry = np.int32(0)
    for at in range(np.uint64(_padded(n))):
        entry += np.int32(1) if sums[at] <= x else np.int32(0)
    return np.int64(entry)


@_inner
def _entry_of(topic: Any, listed: Any, low: Any, n: Any) -> Any:
    """Return the entry of a topic in a list, -1 if absent; without a branch."""
    entry = np.int32(0)
    for at in range(_padded(n)):
        entry += np.int32(at + 1) if listed[np.uint64(low + at)] == np.uint32(topic) else np.int32(0)
    return np.int64(entry) - 1


@_run_of_topics
def _sum_weights(weight: Any, low: Any, high: Any) -> Any:
    total = np.float32(0.0)
    for k in range(low, high):
        total += weight[k]
    return total


@_inner
def _in_row(table: Any, change: Any, row: Any, k: Any, beta: Any) -> Any:
    return np.float32(max(np.int32(table[row, k] + change[row, k]), np.int32(0))) + beta


@_run_of_topics
def _sum_row(table: Any, change: Any, row: Any, beta: Any, weight: Any, low: Any, high: Any) -> Any:
    total = np.float32(0.0)
    for k in range(low, high):
        total += _in_row(table, change, row, k, beta) * weight[k]
    return total


@_part
def _find_topic(u: Any, weight: Any, sums: Any) -> Any:
    """Return the topic at which the cumulative sum of the weights exceeds u times their total."""
    blocks, total = (len(weight) + BLOCK - 1) // BLOCK, np.float32(0.0)
    for block in range(blocks):
        total += _sum_weights(weight, np.uint64(block * BLOCK), np.uint64(min(len(weight), block * BLOCK + BLOCK)))
        sums[block] = total
    block, x = _find_block(np.float32(u * np.float64(total)), blocks, sums)
    k, last = np.uint64(block * BLOCK), np.uint64(min(len(weight), block * BLOCK + BLOCK) - 1)
    while k < last and x >= weight[k]:
        x -= weight[k]
        k += np.uint64(1)
    return k


@_part
def _find_in_row(u: Any, table: Any, change: Any, row: Any, beta: Any, weight: Any, sums: Any) -> Any:
    """Return the topic at which the cumulative sum of row x weights exceeds u times the total, and that total."""
    blocks, total = (len(weight) + BLOCK - 1) // BLOCK, np.float32(0.0)
    for block in range(blocks):
        low, high = np.uint64(block * BLOCK), np.uint64(min(len(weight), block * BLOCK + BLOCK))
        total += _sum_row(table, change, row, beta, weight, low, high)
        sums[block] = total
    block, x = _find_block(np.float32(u * np.float64(total)), blocks, sums)
    k, last = np.uint64(block * BLOCK), np.uint64(min(len(weight), block * BLOCK + BLOCK) - 1)
    while k < last:
        chance = _in_row(table, change, row, k, beta) * weight[k]
        if x < chance:
            break
        x -= chance
        k += np.uint64(1)
    return k, np.float64(total)


@_part
def _find_block(x: Any, blocks: Any, sums: Any) -> Any:
    block = 0
    while block + 1 < blocks and x >= sums[block]:
        block += 1
    return block, x - sums[block - 1] if block else x


@_inner
def _relist(old: Any, new: Any, at: Any, listed: Any, count: Any, low: Any, n: Any, limit: Any, n_topics: Any) -> Any:
    """Move the count of one token of a word from `old` (-1: none yet) to `new`; return the length of the list.

    `at` is the position of `new` in the list, below 0 if absent. The length is -1 if it would exceed `limit`.
    """
    gone = low + _entry_of(old, listed, low, n) if old >= 0 else np.int64(-1)
    if at >= 0:
        count[np.uint64(at)] += np.float32(1.0)
    elif n < limit:
        listed[np.uint64(low + n)], count[np.uint64(low + n)] = np.uint32(new), np.float32(1.0)
        n += 1
    else:
        return np.int64(-1)
    if gone >= low:
        count[np.uint64(gone)] -= np.float32(1.0)
        if count[np.uint64(gone)] <= np.float32(0.0):
            n -= 1
            last = np.uint64(low + n)
            listed[np.uint64(gone)], count[np.uint64(gone)] = listed[last], count[last]
            listed[last], count[last] = np.uint32(n_topics), np.float32(0.0)
    return n


@_part
def _write_down(moves: Any, moved: Any, change: Any) -> None:
    """Add moves of tokens, each (row, old topic or -1, new topic), to `change`.

    All of a document together: one by one, each would wait for a row that is in no cache.
    """
    for move in range(moved):
        row = np.uint32(moves[move, 0])
        if moves[move, 1] >= 0:
            change[row, np.uint32(moves[move, 1])] -= 1
        change[row, np.uint32(moves[move, 2])] += 1


@_part
def _list_again(
    of_document: Any, topic: Any, begin: Any, end: Any, low: Any, high: Any, n: Any, doc_topics: Any, doc_counts: Any
) -> Any:
    """List the topics of a document, some of whose tokens have changed theirs; return their number.

    The topics are those of the list of before, with `n` entries from `low`, and of the tokens from `begin` to `end`.
    Their counts in `of_document` are set to 0. The list ends before `high`: further topics are counted, and not listed.
    """
    length = np.int32(0)
    for entry in range(np.uint64(low), np.uint64(low + n)):
        k = np.uint32(doc_topics[entry])
        often, at = np.int32(of_document[k]), np.uint64(low + length)
        doc_topics[at], doc_counts[at] = np.int32(k), often  # without a branch: the next entry replaces one of count 0
        of_document[k] = np.float32(0.0)
        length += np.int32(often > 0)
    for token in range(begin, end):
        k = topic[token] - np.int32(1)
        if k >= 0 and of_document[np.uint32(k)] > np.float32(0.0):
            if low + length < high:
                doc_topics[low + length], doc_counts[low + length] = k, np.int32(of_document[np.uint32(k)])
            of_document[np.uint32(k)] = np.float32(0.0)
            length += np.int32(1)
    return length


@njit(
    [types.void(_read(int64, 1), _read(int32, 1), int64, _read(int64, 1), int32[::1], int32[::1], int32[::1])],
    nogil=True,
    cache=True,
    error_model="numpy",
)
def list_topics(
    starts: Any, topic: Any, n_topics: Any, slots: Any, doc_topics: Any, doc_counts: Any, doc_lengths: Any
) -> None:
    """Count tokens in the lists of the topics of their documents.

    Parameters
    ----------
    starts : (documents + 1,) int64
        Document d has the tokens from `starts[d]` to `starts[d + 1]`.
    topic : (tokens,) int32
        Topic plus 1 of each token; 0: none.
    slots : (documents + 1,) int64
        The list of document d has room from `slots[d]` to `slots[d + 1]`.
    doc_topics, doc_counts, doc_lengths : int32
        Topics and numbers of tokens, by entry, and number of topics, by document; updated in place. A document of more
        topics than its list has room for is not listed whole.
    """
    of_document = np.zeros(n_topics, np.float32)
    for d in range(len(starts) - 1):
        if starts[d] == starts[d + 1]:
            continue
        for entry in range(slots[d], slots[d] + doc_lengths[d]):
            of_document[np.uint32(doc_topics[entry])] = np.float32(doc_counts[entry])
        for token in range(starts[d], starts[d + 1]):
            if topic[token] > 0:
                of_document[np.uint32(topic[token] - 1)] += np.float32(1.0)
        doc_lengths[d] = _list_again(
            of_document, topic, starts[d], starts[d + 1], slots[d], slots[d + 1], doc_lengths[d], doc_topics, doc_counts
        )


@njit(
    [types.void(*[_read(int64, 1)] * 2, _read(int32, 1), _read(int32, 1), int32[::1])],
    nogil=True,
    cache=True,
    error_model="numpy",
)
def move_lists(from_slots: Any, to_slots: Any, lengths: Any, values: Any, moved: Any) -> None:
    """Copy lists of `lengths` entries, which begin at `from_slots` in `values`, to `to_slots` in `moved`."""
    for d in range(len(lengths)):
        begin, end = from_slots[d], to_slots[d]
        for entry in range(lengths[d]):
            moved[end + entry] = values[begin + entry]


@njit(
    [types.void(_read(int32, 1), _read(int32, 1), int32[:, ::1], int64[::1])],
    nogil=True,
    cache=True,
    error_model="numpy",
)
def count_in(row_of: Any, topic: Any, change: Any, topics: Any) -> None:
    """Count new tokens in `change` and `topics`: each has a row of `change`, `row_of`, and a topic plus 1, `topic`."""
    for token in range(len(row_of)):
        k = np.uint32(topic[token] - 1)
        change[np.uint32(row_of[token]), k] += 1
        topics[k] += 1


@njit(
    [
        float64(
            _read(int32, 1), _read(int64, 1), _read(int64, 1), int32[::1], int32[::1], int32[::1],
            int32[::1], _read(int32, 2), int64[::1], int32[:, ::1], float64, float64, float64, uint64,
        )
    ],
    nogil=True,
    cache=True,
    error_model="numpy",
)  # fmt: skip
def sweep(
    row_of: Any, starts: Any, slots: Any, doc_topics: Any, doc_counts: Any, doc_lengths: Any,
    topic: Any, word_topic: Any, topics: Any, change: Any, alpha: Any, beta: Any, beta_sum: Any, key: Any,
) -> Any:  # fmt: skip
    """Resample the topics of some tokens, document after document; return minus the log of their likelihoods.

    Parameters
    ----------
    row_of : (tokens,) int32
        Row in `word_topic` of each token's word.
    starts : (documents + 1,) int64
        Document d has the tokens from `starts[d]` to `starts[d + 1]`.
    slots, doc_topics, doc_counts, doc_lengths
        The topics of all tokens of each document, also of those that are not resampled (see `list_topics`); updated in
        place. If they are empty, the documents have no other tokens, and are counted.
    topic : (tokens,) int32
        Topic plus 1 of each token; 0: none yet. Updated in place.
    word_topic, topics : (rows, K) int32, (K,) int64
        Counts; `topics` is updated in place.
    change : (rows, K) int32
        Zeros; set to the change of `word_topic`.
    alpha, beta, beta_sum : float
        Weights of the Dirichlet priors; `beta_sum` is beta times the number of words.
    key : uint64
        Key of the random stream.

    Notes
    -----
    The probability of topic k is proportional to weight_k x (n_wk + beta) with weight_k = (n_dk + alpha) /
    (n_k + beta_sum), the token itself not counted. Tokens are grouped by document, so only two weights change per
    token. The part with n_wk is a sum over the topics in which the word occurs; the part with beta is seldom drawn, and
    searched by sums over blocks of topics. For a word that occurs in many topics the full row is summed.
    """
    n_topics = len(topics)
    limit = _limit(n_topics)
    none, one = np.float32(0.0), np.float32(1.0)
    prior, smooth = np.float32(alpha), np.float32(beta)
    place, length = np.empty(len(word_topic), np.int64), np.zeros(len(word_topic), np.int64)
    listed, count = _lists(word_topic, row_of, place, length)
    in_topic = topics.astype(np.float64)  # the values are integers
    inverse = (1.0 / (np.maximum(in_topic, 0.0) + beta_sum)).astype(np.float32)
    of_document = np.zeros(n_topics, np.float32)
    padded = np.zeros(n_topics + 1, np.float32)  # the topic that does not exist has weight 0
    weight = padded[:n_topics]
    sums = np.empty(max(limit, (n_topics + BLOCK - 1) // BLOCK), np.float32)
    moves = np.empty((np.diff(starts).max() if len(starts) > 1 else 0, 3), np.int32)
    drawn, loss, product, factors = np.uint64(0), 0.0, 1.0, 0
    has_lists = len(slots) > 0
    for d in range(len(starts) - 1):
        if starts[d] == starts[d + 1]:
            continue
        if has_lists:
            for entry in range(slots[d], slots[d] + doc_lengths[d]):
                of_document[np.uint32(doc_topics[entry])] = np.float32(doc_counts[entry])
        else:
            of_document[:] = none
            for position in range(starts[d], starts[d + 1]):
                if topic[position] > 0:
                    of_document[np.uint32(topic[position] - 1)] += one
        whole = _begin_document(of_document, inverse, prior, weight)
        moved = 0
        for at in range(starts[d], starts[d + 1]):
            token, row = np.uint32(at), np.uint32(row_of[at])
            if at + _AHEAD < len(row_of):
                ahead = place[row_of[at + _AHEAD]]
                _fetch(listed, ahead)
                _fetch(count, ahead)
            old: Any = np.int64(topic[token]) - 1
            low, n = place[row], length[row]
            before = np.uint64(max(old, 0))
            had, rest, without, found = weight[before], whole, inverse[before], np.int64(-1)
            if old >= 0:  # the token is removed from document and topic, permanently only if it moves
                without = one / np.float32(max(in_topic[before] - 1.0, 0.0) + beta_sum)
                weight[before] = (of_document[before] - one + prior) * without
                rest += np.float64(weight[before]) - np.float64(had)
            drawn += np.uint64(1)
            u = uniform(key, drawn)
            if n >= 0:
                in_list = _sum_list(listed, count, low, n, np.uint32(old), weight, sums)
                expected = np.float64(in_list) + beta * rest
                x = u * expected
                if np.float32(x) < in_list:
                    found = low + _find_listed(np.float32(x), n, sums)
                    new = np.int64(listed[np.uint64(found)])
                else:
                    new = np.int64(_find_topic((x - np.float64(in_list)) / (beta * rest), weight, sums))
                    entry = _entry_of(new, listed, low, n)
                    found = low + entry if entry >= 0 else entry
            else:
                change[row, before] -= np.int32(old >= 0)
                topic_found, expected = _find_in_row(u, word_topic, change, row, smooth, weight, sums)
                change[row, before] += np.int32(old >= 0)
                new = np.int64(topic_found)
            product *= expected
            factors += 1
            if factors == _FACTORS:
                loss -= np.log(product)
                product, factors = 1.0, 0
            if new == old:
                weight[before] = had
                continue
            if old >= 0:
                in_topic[before] -= 1.0
                of_document[before] -= one
                inverse[before] = without
            after = np.uint64(new)
            in_topic[after] += 1.0
            of_document[after] += one
            inverse[after] = one / np.float32(max(in_topic[after], 1.0) + beta_sum)
            had = weight[after]
            weight[after] = (of_document[after] + prior) * inverse[after]
            whole = rest + (np.float64(weight[after]) - np.float64(had))
            topic[token] = new + 1
            if n < 0:
                change[row, before] -= np.int32(old >= 0)
                change[row, after] += 1
                continue
            moves[moved, 0], moves[moved, 1], moves[moved, 2] = row, old, new
            moved += 1
            length[row] = _relist(old, new, found, listed, count, low, n, limit, n_topics)
            if length[row] < 0:  # from now on its row is summed
                _write_down(moves, moved, change)
                moved = 0
        _write_down(moves, moved, change)
        if has_lists:
            doc_lengths[d] = _list_again(
                of_document,
                topic,
                starts[d],
                starts[d + 1],
                slots[d],
                slots[d + 1],
                doc_lengths[d],
                doc_topics,
                doc_counts,
            )
    for k in range(n_topics):
        topics[k] = np.int64(in_topic[k])
    return loss - np.log(product)
