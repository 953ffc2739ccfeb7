//! Finding the part of a file or device that a name means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use creamery_base::{Error, ErrorKind, Escaped, Result};

use super::FileDevice;
use crate::image_name::{ImageName, PARTS_MAX, Part, first_part};
use crate::partition::{Partition, PartitionTable, no_such};
use crate::{Access, BlockDevice};

impl FileDevice {
    /// Returns the byte of the file where the device begins: 0, or the start of the partition.
    #[must_use]
    pub fn start_in_file(&self) -> u64 {
        self.shared.start
    }

    /// Narrows the device to the part that `behind` names, text that begins with an `@`, or to the part of the part.
    ///
    /// # Errors
    /// There is no such part, or it does not fit; or `behind` names more than [`PARTS_MAX`].
    pub(super) fn narrow_all(&mut self, mut behind: &[u8]) -> Result<()> {
        let mut count = 0;
        while !behind.is_empty() {
            if count == PARTS_MAX {
                let what = format!("more than {PARTS_MAX} nested partitions");
                return Err(Error::invalid(what).context(self.describe()));
            }
            behind = self.narrow(behind)?;
            count += 1;
        }
        Ok(())
    }

    /// Whether `file` has a partition table, even a damaged one. Without one, the bytes from the offset at the beginning of `behind` are
    /// checked in its place, and so on while `behind` has more. `file` is no part itself.
    pub(crate) fn has_table(file: &Path, mut behind: &[u8]) -> bool {
        let name = ImageName::whole(file);
        let Ok(mut device) = Self::open_whole(file, &name, Access::ReadOnlyForced) else { return false };
        for _ in 0..PARTS_MAX {
            if PartitionTable::read(&device).map_or(true, |table| table.is_some()) {
                return true;
            }
            // Without a table only an offset leads on.
            match device.narrow(behind) {
                Ok(rest) if !rest.is_empty() => behind = rest,
                _ => return false,
            }
        }
        false
    }

    /// Narrows the device to the first part that `behind` names, and returns the rest. Only while the device is being opened, before any
    /// caller keeps data from it.
    fn narrow<'n>(&mut self, behind: &'n [u8]) -> Result<&'n [u8]> {
        let (outer, whole) = (self.shared.path.clone(), self.len());
        let table = PartitionTable::read(self);
        let is_called = |name: &str| {
            let table = table.as_ref().ok().and_then(Option::as_ref);
            table.is_some_and(|table| table.called(name).next().is_some())
        };
        let (part, rest) = first_part(behind, is_called).map_err(|error| error.context(self.describe()))?;
        let (start, len) = match part {
            Part::Number(number) => self.numbered(table?.as_ref(), number)?,
            Part::Named(name) => self.called(table?.as_ref(), name)?,
            Part::Offset(offset) => self.stretch(table, offset)?,
        };
        assert!(start.checked_add(len).is_some_and(|end| end <= whole), "DEV-5: it lies within");
        let mut path = outer.into_os_string();
        path.push(OsStr::from_bytes(&behind[..behind.len() - rest.len()]));
        let shared = self.shared_mut();
        shared.start += start;
        shared.id.start = shared.start;
        shared.len = AtomicU64::new(len);
        shared.is_part = true;
        shared.path = PathBuf::from(path);
        Ok(rest)
    }

    /// Returns start and length of partition `number`.
    fn numbered(&mut self, table: Option<&PartitionTable>, number: u64) -> Result<(u64, u64)> {
        let Some(table) = table else {
            let what = format!("{} has no partition table: partition {number}", self.describe());
            return Err(Error::invalid(what));
        };
        let Some(partition) = table.partition(number) else { return Err(no_such(self, table, number)) };
        self.place_of_partition(table, partition)
    }

    /// Returns start and length of the partition with this name or UUID.
    fn called(&mut self, table: Option<&PartitionTable>, name: &[u8]) -> Result<(u64, u64)> {
        let shown = Escaped(name);
        let Some(table) = table else {
            let what =
                format!("{} has no partition table, so no partition is called '{shown}'", self.describe());
            return Err(Error::invalid(what));
        };
        // Partitions without a name have an empty name.
        let text = std::str::from_utf8(name).ok().filter(|text| !text.is_empty());
        let called: Vec<&Partition> = text.into_iter().flat_map(|text| table.called(text)).collect();
        match called[..] {
            [partition] => self.place_of_partition(table, partition),
            [] => Err(no_such(self, table, format_args!("called '{shown}'"))),
            _ => {
                let numbers: Vec<String> =
                    called.iter().map(|partition| partition.number.to_string()).collect();
                let what = format!(
                    "partitions {} of {} are all called '{shown}': name one by its number or its UUID",
                    numbers.join(", "),
                    self.describe(),
                );
                Err(Error::invalid(what))
            }
        }
    }

    fn place_of_partition(&mut self, table: &PartitionTable, partition: &Partition) -> Result<(u64, u64)> {
        let number = partition.number;
        if partition.kind.is_extended() {
            let what = format!("partition {number} of {} only holds others; there are: ", self.describe());
            return Err(Error::invalid(what + &table.tell(self)?));
        }
        let end = self.len();
        let what = format!(
            "partition {number} of {} ends at byte {}, expected at most {end}",
            self.describe(),
            partition.end()
        );
        let is_cut_short = !partition.fits(self);
        if is_cut_short && (self.shared.access == Access::ReadWrite || partition.start >= end) {
            return Err(Error::invalid(what));
        }
        let path = self.shared.path.display().to_string();
        let notes = table.notes.iter().map(|note| format!("{path}: {note}"));
        self.shared_mut().notes.extend(notes.chain(is_cut_short.then_some(what)));
        Ok((partition.start, partition.len.min(end - partition.start)))
    }

    /// Returns start and length of the stretch that begins at `offset` and ends with its partition. A table that cannot be read ends
    /// nothing: offsets exist for such disks.
    fn stretch(&self, table: Result<Option<PartitionTable>>, offset: u64) -> Result<(u64, u64)> {
        let (len, sector) = (self.len(), self.sector_size());
        if !offset.is_multiple_of(sector) {
            let what = format!(
                "byte {offset} of {} is not at the start of a sector of {sector} bytes",
                self.describe()
            );
            return Err(Error::invalid(what));
        }
        if offset >= len {
            let what = format!("byte {offset} of {} is beyond its {len} bytes", self.describe());
            return Err(Error::invalid(what));
        }
        let table = match table {
            Err(error) if error.kind() == ErrorKind::InvalidInput => None,
            table => table?,
        };
        let end = table.and_then(|table| table.stretch_end(offset)).map_or(len, |end| end.min(len));
        Ok((offset, end - offset))
    }
}
