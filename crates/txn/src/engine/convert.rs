//! Converting a filesystem, in a transaction of its own.

use creamery_base::Result;

use super::Engine;
use crate::conversion::Conversion;
use crate::reserve_items::ReserveItems;

impl Engine {
    /// Converts the filesystem; the conversion and all earlier changes are durable on return. False when there was nothing to convert. Never
    /// call it with a handle.
    /// Errors: invalid: a block group tree without a free space tree or without no-holes, which Linux refuses; in use: another
    /// conversion; damage: the tree is there; no space; those of a commit.
    pub fn convert(&self, conversion: Conversion) -> Result<bool> {
        self.check_writable()?;
        let converter = self.converter();
        if conversion.is_done(self.superblock.compat_ro()) {
            return Ok(false);
        }
        if conversion == Conversion::ToBlockGroupTree {
            converter.check_has_what_a_group_tree_needs()?;
        }
        let handle = self.start(ReserveItems::items(converter.items(conversion)))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        // While this thread holds a handle, no other conversion comes between the feature, the tree and this one.
        let waits = match conversion.is_done(self.superblock.compat_ro()) {
            true => Ok(false),
            false => converter
                .check_is_not_there(conversion)
                .and_then(|()| self.conversions.at_close(conversion))
                .map(|()| true),
        };
        handle.end();
        if !waits? {
            return Ok(false);
        }
        let committed = self.commit_through(running);
        if committed.is_err() {
            self.conversions.take(); // gives its room back
        }
        drop(room);
        committed.map(|()| true)
    }
}
