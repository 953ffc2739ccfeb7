//! Finding the part of a file or device that a name means.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use creamery_base::{Error, ErrorKind, Escaped, Result};

use super::FileDevice;
use crate::image_name::Part;
use crate::partition::{PartitionTable, no_such};
use crate::{Access, BlockDevice};

impl FileDevice {
    /// Makes it a part of what it is. For opening it: nothing was read from it yet that anybody keeps.
    ///
    /// # Errors
    /// There is no such part, or it does not fit.
    pub(super) fn narrow(&mut self, part: &Part) -> Result<()> {
        let (outer, whole) = (self.shared.path.display().to_string(), self.len());
        let (start, len, name) = match part {
            Part::Number(number) => {
                let (start, len) = self.partition(*number)?;
                (start, len, format!("{outer}@{number}"))
            }
            Part::Named(name) => {
                let number = self.number_of(name)?;
                let (start, len) = self.partition(number)?;
                (start, len, format!("{outer}@{name}"))
            }
            Part::Offset(offset) => {
                let (start, len) = self.stretch(*offset)?;
                (start, len, format!("{outer}@@{offset}"))
            }
        };
        assert!(start.checked_add(len).is_some_and(|end| end <= whole), "DEV-5: it lies within");
        let shared = &mut self.shared;
        shared.start += start;
        shared.id.start = shared.start;
        shared.len = AtomicU64::new(len);
        shared.is_part = true;
        shared.path = PathBuf::from(name);
        Ok(())
    }

    /// The number of the partition that has this name or UUID.
    fn number_of(&self, name: &str) -> Result<u64> {
        let Some(table) = PartitionTable::read(self)? else {
            let what = format!(
                "{} has no partition table, so no partition is called '{}'",
                self.describe(),
                Escaped(name.as_bytes())
            );
            return Err(Error::invalid(what));
        };
        let called: Vec<u64> = table.called(name).map(|partition| partition.number.into()).collect();
        match called[..] {
            [number] => Ok(number),
            [] => Err(no_such(self, &table, format_args!("called '{}'", Escaped(name.as_bytes())))),
            _ => {
                let numbers: Vec<String> = called.iter().map(u64::to_string).collect();
                let what = format!(
                    "partitions {} of {} are all called '{}': name one by its number or its UUID",
                    numbers.join(", "),
                    self.describe(),
                    Escaped(name.as_bytes())
                );
                Err(Error::invalid(what))
            }
        }
    }

    /// Where the partition with this number lies, start and length.
    fn partition(&mut self, number: u64) -> Result<(u64, u64)> {
        let Some(table) = PartitionTable::read(self)? else {
            let what =
                format!("{} has no partition table, so there is no partition {number}", self.describe());
            return Err(Error::invalid(what));
        };
        let Some(partition) = table.partition(number) else { return Err(no_such(self, &table, number)) };
        if partition.kind.is_extended() {
            let what = format!("partition {number} of {} only holds others; there are: ", self.describe());
            return Err(Error::invalid(what + &table.tell(self)?));
        }
        let end = self.len();
        let what = format!(
            "partition {number} of {} ends at byte {}, behind the end, which is at {end}",
            self.describe(),
            partition.end()
        );
        let is_cut_short = !partition.fits(self);
        if is_cut_short && (self.shared.access == Access::ReadWrite || partition.start >= end) {
            return Err(Error::invalid(what));
        }
        let path = self.shared.path.display().to_string();
        let notes = table.notes.iter().map(|note| format!("{path}: {note}"));
        self.shared.notes.extend(notes.chain(is_cut_short.then_some(what)));
        Ok((partition.start, partition.len.min(end - partition.start)))
    }

    /// What begins at `offset` and ends with the partition that it is in, start and length. A table that cannot be read ends nothing:
    /// it is for such disks that offsets are named.
    fn stretch(&self, offset: u64) -> Result<(u64, u64)> {
        let (len, sector) = (self.len(), self.sector_size());
        if !offset.is_multiple_of(sector) {
            let what = format!(
                "byte {offset} of {} is not at the start of a sector of {sector} bytes",
                self.describe()
            );
            return Err(Error::invalid(what));
        }
        if offset >= len {
            let what = format!("byte {offset} of {} is behind the last of its {len} bytes", self.describe());
            return Err(Error::invalid(what));
        }
        let table = match PartitionTable::read(self) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => None,
            table => table?,
        };
        let end = table.and_then(|table| table.stretch_end(offset)).map_or(len, |end| end.min(len));
        Ok((offset, end - offset))
    }
}
