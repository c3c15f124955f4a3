"""Built-in applications, and the protocols of all applications.

bgd/              elastic batch gradient descent of linear models
kmeans/           k-means by Lloyd's algorithm
lda/              latent Dirichlet allocation by collapsed Gibbs sampling
mf/               matrix factorisation by stochastic gradient descent
base              protocols of applications: tables, data preparation, kernel, evaluation, prediction
csr               sparse inputs as compressed rows (CSR)
csr_kernels       compiled products of a CSR matrix with a dense one
kernel_cache      import of modules with compiled kernels, compiled once per machine by way of numba's cache
mlr               multinomial logistic regression, on raw inputs or random Fourier features
parameter_checks  checks of the parameters that users give to applications
registry          built-in applications by name, and construction of applications
residents         the easy application as a general one, and the executor of a partition on a node
returned          what the methods of an application may return: one description, for each method
"""
