//! A filesystem filled from a directory of the host.

mod budget;
mod listing;
mod progress;
mod reader;
mod source;
mod subvolume;
mod walk;

pub use progress::{NoProgress, Progress};
pub use subvolume::{RootdirSubvolume, SubvolumeKind};
