//! Making changes durable: a whole commit, always, until there is a log.

use creamery_base::Result;

use crate::filesystem::Filesystem;
use crate::open_file::OpenFile;

impl Filesystem {
    /// Makes everything that ended before durable.
    pub fn sync(&self) -> Result<()> {
        self.clean_for_others();
        self.engine.commit()
    }

    /// As [`Filesystem::sync`], with nothing left to do: inodes that lost their last user are deleted, all of them.
    /// Errors: as above. What cannot be deleted stays an orphan, to be deleted when the filesystem is opened again.
    pub fn settle(&self) -> Result<()> {
        self.clean();
        self.engine.commit()
    }

    /// Makes what was done to `file` before durable. `data_only` leaves out what is not needed to read the data back,
    /// which a commit cannot make use of.
    pub fn fsync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let _ = (file, data_only);
        self.engine.commit()
    }
}
