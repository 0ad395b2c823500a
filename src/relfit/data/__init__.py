"""What the user brings, checked: samples, densities, files, frames and objects of other libraries."""
