//! Missing devices, and the chunks that are lost with them.

use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_format::BlockGroupFlags;

use super::MemberState;
use crate::open::only_read;
use crate::{Chunk, Mode, Volume};

/// The largest number of chunks that an error names.
const NAMED: usize = 3;

impl Volume {
    /// Compares the devices with those that the chunk tree lists. If the superblock has another count, this adds a note: the count
    /// decides nothing, and the next commit corrects it, like that of Linux.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMissing`]: one is missing, and the volume was not opened for that, or so many are that chunks are lost.
    /// [`ErrorKind::InvalidInput`]: a device was given that the chunk tree does not list. [`ErrorKind::Unsupported`]: members have
    /// different copies of the roots, so they were written separately.
    pub fn judge_devices(&self, listed: &[DevId]) -> Result<()> {
        if let Some(note) = self.expect_devices(listed)? {
            self.note_once(note);
        }
        let members = self.members().all();
        if let Some(other) = members.iter().find(|member| members.len() > 1 && !listed.contains(&member.dev))
        {
            let (name, number, fsid) = (other.device.describe(), other.dev, self.fsid());
            let what = format!("{name} is device {number}, which filesystem {fsid} no longer has");
            return Err(Error::invalid(what).advise("leave it out"));
        }
        self.expect_one_history()?;
        let (found, want) = (self.superblock().device_count(), listed.len() as u64);
        if found != want {
            self.note_once(format!(
                "the superblock's number of devices is wrong, expected {want}, found {found}"
            ));
        }
        for member in members {
            if let MemberState::Stale(generation) = member.state()
                && generation < self.generation()
            {
                self.note_once(format!(
                    "{} missed writes: it is at generation {generation}, the filesystem at {}; it is read where no other device has the data, \
                     and {} says that it is right",
                    member.device.describe(),
                    self.generation(),
                    if self.rescue().ignore_data_csums { "nothing" } else { "a checksum" }
                ));
            }
        }
        Ok(())
    }

    /// Expects the `wanted` devices, or that the known chunks can be read without the missing ones.
    /// Returns a note about the missing ones.
    pub(crate) fn expect_devices(&self, wanted: &[DevId]) -> Result<Option<String>> {
        let is_missing = |dev: &&DevId| self.member_state(**dev) == MemberState::Missing;
        let missing: Vec<DevId> = wanted.iter().filter(is_missing).copied().collect();
        if missing.is_empty() {
            return Ok(None);
        }
        if self.mode() == Mode::ReadWrite {
            let known = self.members().all().len() + missing.len();
            let counted = usize::try_from(self.superblock().device_count()).unwrap_or(known);
            return Err(only_read(known.max(counted)));
        }
        self.members().set_some_missing();
        let fsid = self.fsid();
        let said =
            format!("filesystem {fsid}: {} missing, {} given", list(&missing), self.members().all().len());
        let bears_loss = self.rescue().ignore_bad_roots;
        if !self.members().is_degraded() && !bears_loss {
            return Err(Error::new(ErrorKind::DeviceMissing, said));
        }
        let lost: Vec<_> = self.chunks().into_iter().filter(|chunk| !self.is_readable(chunk)).collect();
        if lost.is_empty() {
            return Ok(Some(said));
        }
        let named = lost.iter().take(NAMED);
        let mut named: Vec<String> = named
            .map(|chunk| format!("{} bytes at logical {} ({})", chunk.len, chunk.start, chunk.flags))
            .collect();
        if let more @ 1.. = lost.len().saturating_sub(NAMED) {
            named.push(format!("{more} more"));
        }
        let what = format!("{said}, too many for these chunks: {}", named.join(", "));
        match bears_loss {
            true => Ok(Some(what)),
            false => {
                let leads_nowhere = lost.iter().any(|chunk| chunk.flags.contains(BlockGroupFlags::SYSTEM));
                let advice = match leads_nowhere {
                    true => "no file can be found without one more of them",
                    false => "--rescue all reads what can be read",
                };
                Err(Error::new(ErrorKind::DeviceMissing, what).advise(advice))
            }
        }
    }

    /// Whether all of a chunk can be read from the members that are there.
    fn is_readable(&self, chunk: &Chunk) -> bool {
        chunk.is_readable_without(&|dev| self.member_state(dev) == MemberState::Missing)
    }
}

/// "device 2 is" or "devices 2 and 3 are".
fn list(devices: &[DevId]) -> String {
    match devices {
        [one] => format!("device {one} is"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(DevId::to_string).collect();
            format!("devices {} and {last} are", rest.join(", "))
        }
        [] => String::new(),
    }
}
