"""Applications that ship with the engine, one file each.

kmeans/           k-means by Lloyd's algorithm
lda/              latent Dirichlet allocation by collapsed Gibbs sampling
mf/               matrix factorisation by stochastic gradient descent
base              what an application is: tables, a way to prepare its data, a kernel, and a measure of how good
the model is
csr               inputs that are mostly zeros: compressed rows, as a partition holds them and as a kernel wants
them
csr_kernels       products of compressed sparse rows with a dense matrix: one thread, no GIL, one order of
summation
kernel_cache      modules of compiled kernels: one process of a machine compiles, the others take what it left
in numba's cache
mlr               multinomial logistic regression, on the inputs as they are or on random Fourier features of
them
parameter_checks  parameters of applications: what a user may give, checked; ValueError in one line says what is
wanted


    kmeans/           k-means by Lloyd's algorithm
    lda/              latent Dirichlet allocation by collapsed Gibbs sampling
    mf/               matrix factorisation by stochastic gradient descent
    base              what an application is: tables, a way to prepare its data, a kernel, and a measure of how good
                      the model is
    csr               inputs that are mostly zeros: compressed rows, as a partition holds them and as a kernel wants
                      them
    csr_kernels       products of compressed sparse rows with a dense matrix: one thread, no GIL, one order of
                      summation
    kernel_cache      modules of compiled kernels: one process of a machine compiles, the others take what it left
                      in numba's cache
    mlr               multinomial logistic regression, on the inputs as they are or on random Fourier features of
                      them
    parameter_checks  parameters of applications: what a user may give, checked; ValueError in one line says what is
                      wanted
    registry          the applications by name, and what the engine asks of one
"""
