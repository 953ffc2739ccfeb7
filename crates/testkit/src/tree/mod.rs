//! Trees to make images from: a big ordinary one for the benches, and a small one with everything that is hard.

mod generate;
mod name_hash;
mod torture;

pub use generate::{Generated, generate, generate_text};
pub use name_hash::{colliding_names, colliding_offsets, name_hash};
pub use torture::torture;
