"""A second accounting: it lives through every second of an allocation, in decimal dollars, and knows no other code."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

HOUR = 3600
MICRO = Decimal("0.000001")

#: (second, dollars an hour), in file order.
Events = list[tuple[int, Decimal]]


@dataclass
class NaiveCharge:
    hour_start: int
    price: Decimal
    amount: Decimal
    refunded: bool


@dataclass
class NaiveBill:
    """What became of a request, in dollars."""

    granted: bool = False
    evicted_at: int | None = None
    ended_at: int | None = None
    charges: list[NaiveCharge] = field(default_factory=list)
    prorata: Decimal = Decimal(0)
    usable_s: int = 0

    @property
    def refunded(self) -> Decimal:
        return sum((charge.amount for charge in self.charges if charge.refunded), Decimal(0))

    @property
    def total(self) -> Decimal:
        return sum((charge.amount for charge in self.charges if not charge.refunded), Decimal(0))


#: From the prices of the seconds lived in an hour (and of those after them, should more be paid), the number of the
#: hour, and whether it was broken off by an eviction: the amount for one instance in dollars an hour times seconds (the
#: division comes last, so that a half of a micro-dollar is one); the seconds that it pays for; whether it comes back.
Rule = Callable[[list[Decimal], list[Decimal], int, bool], tuple[Decimal, int, bool]]


def whole_hours(lived: list[Decimal], after: list[Decimal], hour: int, broken: bool) -> tuple[Decimal, int, bool]:
    """Pay an hour at the price of its first second; what the market breaks off comes back."""
    return lived[0] * HOUR, HOUR, broken


def seconds(at_once: bool, least: int = 60) -> Rule:
    """Pay second by second, at the price of the hour's first second or of each second; the first hour may be free."""

    def rule(lived: list[Decimal], after: list[Decimal], hour: int, broken: bool) -> tuple[Decimal, int, bool]:
        paid = list(lived)
        while hour == 0 and len(paid) < least:
            paid.append(after[len(paid) - len(lived)])
        dollars = sum(paid, Decimal(0)) if at_once else len(paid) * lived[0]
        return dollars, len(paid), broken and hour == 0

    return rule


def fixed(price: Decimal) -> Rule:
    """Pay every second the same."""

    def rule(lived: list[Decimal], after: list[Decimal], hour: int, broken: bool) -> tuple[Decimal, int, bool]:
        return sum((price for _ in lived), Decimal(0)), len(lived), False

    return rule


def naive_bill(
    events: Events,
    count: int,
    bid: Decimal,
    at: int,
    leaves_at: int | None,
    window_ends: int | None,
    rule: Rule,
    max_life: int | None = None,
    shown_price: Decimal | None = None,
) -> NaiveBill:
    """Return what becomes of a request; `shown_price` is what a charge names as its price, if not the market's."""
    changes: dict[int, Decimal] = {}
    price: Decimal | None = None
    for second, dollars in events:
        if second <= at:
            price = dollars
        else:
            changes[second] = dollars  # of several in one second the last stays
    bill = NaiveBill()
    if price is None or price > bid:
        return bill
    bill.granted = True
    prices: list[Decimal] = []
    now = at
    while True:
        price = changes.get(now, price)
        if now == window_ends:
            break
        if price > bid or (max_life is not None and now == at + max_life):
            bill.evicted_at = now
            break
        if now == leaves_at:
            break
        prices.append(price)
        now += 1
    bill.ended_at = now
    bill.usable_s = now - at
    after = []
    for second in range(now, now + HOUR):
        price = changes.get(second, price)
        after.append(price)
    for hour, start in enumerate(range(0, len(prices), HOUR)):
        lived = prices[start : start + HOUR]
        broken = bill.evicted_at is not None and len(lived) < HOUR
        dollar_seconds, paid_s, refunded = rule(lived, after, hour, broken)
        amount = (dollar_seconds * count / HOUR).quantize(MICRO, ROUND_HALF_EVEN)
        bill.charges.append(NaiveCharge(at + start, shown_price or lived[0], amount, refunded))
        if not refunded:
            bill.prorata += (amount * len(lived) / paid_s).quantize(MICRO, ROUND_HALF_EVEN)
    return bill
