//! What the balance promises, checked against brute force on small groups and by simulation on larger ones.

mod assignment;
mod convergence;
mod group;
mod planning;
