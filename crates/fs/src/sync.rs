//! Making changes durable, and ending: a whole commit, always, until there is a log.

use creamery_base::Result;

use crate::filesystem::Filesystem;
use crate::open_file::OpenFile;

impl Filesystem {
    /// Makes everything durable and gives the devices back, whoever still has a reference or an open file: all that these
    /// ask for is refused from then on.
    /// Errors: those of the commit and of the devices; it is closed all the same.
    pub fn shut_down(&self) -> Result<()> {
        self.clean();
        self.engine.shut_down()
    }

    /// Makes everything that ended before durable.
    pub fn sync(&self) -> Result<()> {
        self.clean_for_others();
        self.engine.commit()
    }

    /// As [`Filesystem::sync`], with nothing left to do: inodes that have lost their last user are deleted, all of them.
    /// Errors: as above. What cannot be deleted stays an orphan, to be deleted when the filesystem is opened again.
    pub fn settle(&self) -> Result<()> {
        self.clean();
        self.engine.commit()
    }

    /// Makes what was done to `file` before durable. `data_only` leaves out what is not needed to read the data back,
    /// which a commit cannot make use of.
    pub fn fsync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let _ = (file, data_only);
        self.engine.check_open()?;
        self.engine.commit()
    }
}
