//! Tools above the library: what commands ask of a filesystem beyond what `std::fs` has.
//!
//! - [`glob`]: patterns in paths, as a shell expands them;
//! - [`find`]: tests of files, as find(1) has them.
//!
//! They use the library as every other program does, and promise nothing between minor versions.

mod expand;
pub mod find;
pub mod glob;
