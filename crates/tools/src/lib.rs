//! Tools above the library: functions for commands beyond those of `std::fs`.
//!
//! - [`glob`]: patterns in paths, as a shell expands them;
//! - [`find`]: tests of files, like find(1).
//!
//! They use the library like any other program, and are not stable between minor versions.

mod expand;
pub mod find;
pub mod glob;
