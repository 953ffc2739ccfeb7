//! A mounted filesystem, through system calls.

use std::fs::{File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use creamery::statistics::Statistics;
use creamery_testkit::{
    commit_and_clean, create_snapshot, create_subvolume, delete_subvolume, ficlonerange, free_bytes,
    has_subvolume, subvolume_id, sync_filesystem,
};

use super::{Content, How, Side};

/// Time between two polls for dropped subvolumes.
const ASK_AGAIN: Duration = Duration::from_millis(1);

/// The root of a mount, and its server.
pub(crate) struct Directory {
    root: PathBuf,
    /// The server's processes; empty for the kernel's filesystem.
    servers: Vec<u32>,
    /// The program whose `sync DIR` makes everything durable where syncfs(2) does not reach.
    sync_by: Option<PathBuf>,
    /// Deleted subvolumes that may not be dropped yet.
    deleted: Mutex<Vec<u64>>,
}

impl Directory {
    pub(crate) const fn new(root: PathBuf, servers: Vec<u32>, sync_by: Option<PathBuf>) -> Self {
        Self { root, servers, sync_by, deleted: Mutex::new(Vec::new()) }
    }
}

impl Side for Directory {
    fn make_dir(&self, path: &str) -> Result<()> {
        Ok(std::fs::create_dir(self.root.join(path))?)
    }

    fn create(&self, path: &str) -> Result<()> {
        Ok(File::create(self.root.join(path)).map(drop)?)
    }

    fn stat(&self, path: &str) -> Result<u64> {
        Ok(std::fs::symlink_metadata(self.root.join(path))?.ino())
    }

    fn list(&self, path: &str) -> Result<usize> {
        let mut names = 0;
        for entry in std::fs::read_dir(self.root.join(path))? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(std::fs::rename(self.root.join(from), self.root.join(to))?)
    }

    fn change_mode(&self, path: &str, mode: u32) -> Result<()> {
        Ok(std::fs::set_permissions(self.root.join(path), Permissions::from_mode(mode))?)
    }

    fn touch(&self, path: &str) -> Result<()> {
        let now = FileTimes::new().set_accessed(SystemTime::now()).set_modified(SystemTime::now());
        Ok(File::open(self.root.join(path))?.set_times(now)?)
    }

    fn free_bytes(&self) -> Result<u64> {
        free_bytes(&self.root)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.root.join(path))?)
    }

    fn open(&self, path: &str, how: How) -> Result<Box<dyn Content>> {
        let mut options = File::options();
        match how {
            How::New => options.write(true).create_new(true),
            How::Write => options.write(true),
            How::Read => options.read(true),
            How::Load { create, truncate } => {
                options.read(true).write(true).create(create).truncate(truncate)
            }
        };
        Ok(Box::new(options.open(self.root.join(path))?))
    }

    fn copy_in(&self, host: &Path, path: &str) -> Result<()> {
        copy(host, &self.root.join(path))
    }

    fn copy_out(&self, path: &str, host: &Path) -> Result<()> {
        copy(&self.root.join(path), host)
    }

    fn walk(&self, path: &str) -> Result<usize> {
        let mut files = 0;
        let mut waiting = vec![self.root.join(path)];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                files += usize::from(metadata.is_file());
                if metadata.is_dir() {
                    waiting.push(entry.path());
                }
            }
        }
        Ok(files)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.root.join(path))?)
    }

    fn clone_file(&self, from: &str, to: &str) -> Result<()> {
        let source = File::open(self.root.join(from))?;
        Ok(ficlonerange(&File::create_new(self.root.join(to))?, 0, &source, 0, 0)?)
    }

    fn copy_within(&self, from: &str, to: &str) -> Result<()> {
        let [from, to] = [from, to].map(|path| self.root.join(path));
        run(Command::new("cp").args(["-a", "--reflink=auto", "--"]).args([from, to]))
    }

    fn make_subvolume(&self, path: &str) -> Result<()> {
        Ok(create_subvolume(&File::open(&self.root)?, path)?)
    }

    fn snapshot(&self, source: &str, path: &str) -> Result<()> {
        Ok(create_snapshot(&File::open(&self.root)?, path, &File::open(self.root.join(source))?)?)
    }

    fn delete_subvolume(&self, path: &str) -> Result<()> {
        let id = subvolume_id(&File::open(self.root.join(path))?)?;
        delete_subvolume(&File::open(&self.root)?, path)?;
        self.deleted.lock().expect("nobody panicked").push(id);
        Ok(())
    }

    fn begin_dropping(&self) -> Result<()> {
        Ok(commit_and_clean(&File::open(&self.root)?)?)
    }

    fn sync_subvolumes(&self) -> Result<()> {
        self.begin_dropping()?;
        while self.is_dropping()? {
            std::thread::sleep(ASK_AGAIN);
        }
        Ok(())
    }

    fn is_dropping(&self) -> Result<bool> {
        let root = File::open(&self.root)?;
        let mut deleted = self.deleted.lock().expect("nobody panicked");
        while let Some(id) = deleted.last() {
            if has_subvolume(&root, *id)? {
                return Ok(true);
            }
            deleted.pop();
        }
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        match &self.sync_by {
            None => sync_filesystem(&self.root),
            Some(program) => run(Command::new(program).arg("sync").arg(&self.root)),
        }
    }

    fn servers(&self) -> &[u32] {
        &self.servers
    }

    fn statistics(&self) -> Option<Statistics> {
        None
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Copies with `cp -a`, as a user of a mount does.
fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["-a", "--"]).arg(from).arg(to))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

impl Content for File {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        Ok(FileExt::read_exact_at(self, out, offset)?)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        Ok(FileExt::read_at(self, out, offset)?)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(FileExt::write_all_at(self, data, offset)?)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(creamery_testkit::seek_data(self, offset)?)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(creamery_testkit::seek_hole(self, offset)?)
    }

    fn is_delayed(&self) -> Result<Option<bool>> {
        Ok(creamery_testkit::is_delalloc(self, 0)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}
