"""What can be trained: the algorithms by name, their hyper-parameters, and the domains they serve."""
