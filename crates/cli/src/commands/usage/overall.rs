//! The sums at the head of `filesystem usage`.

use std::io::{self, Write};

use creamery::volume::BlockGroups;
use serde::Serialize;

use super::facts::FilesystemUsage;
use crate::output::Output;
use crate::units::UnitArgs;

/// Bytes of a filesystem, over all of its devices.
#[derive(Serialize)]
pub(super) struct Overall {
    size: u64,
    allocated: u64,
    unallocated: u64,
    missing: u64,
    slack: u64,
    used: u64,
    /// Bytes for data if unallocated space goes to data with the present profile.
    free_estimated: u64,
    /// Bytes for data if all data had as many copies as the kind with the most.
    free_minimum: u64,
    /// Bytes available, as in statfs(2).
    available: u64,
    data_ratio: f64,
    metadata_ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    global_reserve: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    global_reserve_used: Option<u64>,
    multiple_profiles: bool,
}

impl Overall {
    pub(super) fn of(facts: &FilesystemUsage) -> Self {
        let groups: Vec<&BlockGroups> = facts.groups.iter().map(|group| &group.sum).collect();
        let sum = |bytes: fn(&BlockGroups) -> u64, kind: &str| -> u64 {
            groups.iter().filter(|group| group.kind.contains(kind)).map(|group| bytes(group)).sum()
        };
        let ratio = |kind: &str| {
            let groups = facts.groups.iter().filter(|group| group.sum.kind.contains(kind));
            let on_devices: u64 = groups.map(|group| group.on_devices(group.sum.total)).sum();
            on_devices as f64 / sum(|group| group.total, kind).max(1) as f64
        };
        let (size, allocated) = facts.on_devices();
        let unallocated = size.saturating_sub(allocated);
        let data_ratio = ratio("Data");
        let free = sum(|group| group.total.saturating_sub(group.used), "Data");
        // If data and metadata share their groups, the reserve reduces the free space, too.
        let is_mixed = groups.iter().any(|group| group.kind == "Data+Metadata");
        let kept = facts.reserve.filter(|_| is_mixed).map_or(0, |(total, _)| total);
        let behind = |ratio: f64| (free + (unallocated as f64 / ratio.max(1.0)) as u64).saturating_sub(kept);
        let most = groups.iter().map(|group| group.copies).max().unwrap_or(1) as f64;
        let is_double =
            |(at, group): (usize, &&BlockGroups)| groups[..at].iter().any(|other| other.kind == group.kind);
        Self {
            size,
            allocated,
            unallocated,
            missing: facts.missing(),
            slack: facts.devices.iter().map(|device| device.slack).sum(),
            used: facts.groups.iter().map(|group| group.on_devices(group.sum.used)).sum(),
            free_estimated: behind(data_ratio),
            free_minimum: behind(most),
            available: facts.available,
            data_ratio,
            metadata_ratio: ratio("Metadata"),
            global_reserve: facts.reserve.map(|(total, _)| total),
            global_reserve_used: facts.reserve.map(|(_, used)| used),
            multiple_profiles: groups.iter().enumerate().any(is_double),
        }
    }

    /// Prints the values in the format of btrfs-progs.
    pub(super) fn print(&self, out: &mut Output, units: &UnitArgs) -> io::Result<()> {
        let width = if units.are_usual() { 10 } else { 18 };
        let line = |out: &mut Output, name: &str, bytes: u64| {
            writeln!(out, "    {name}:\t\t{:>width$}", units.show(bytes))
        };
        writeln!(out, "Overall:")?;
        line(out, "Device size", self.size)?;
        line(out, "Device allocated", self.allocated)?;
        line(out, "Device unallocated", self.unallocated)?;
        line(out, "Device missing", self.missing)?;
        line(out, "Device slack", self.slack)?;
        writeln!(out, "    Used:\t\t\t{:>width$}", units.show(self.used))?;
        let (estimated, least) = (units.show(self.free_estimated), units.show(self.free_minimum));
        writeln!(out, "    Free (estimated):\t\t{estimated:>width$}\t(min: {least})")?;
        line(out, "Free (statfs, df)", self.available)?;
        writeln!(out, "    Data ratio:\t\t\t{:>width$.2}", self.data_ratio)?;
        writeln!(out, "    Metadata ratio:\t\t{:>width$.2}", self.metadata_ratio)?;
        if let (Some(total), Some(used)) = (self.global_reserve, self.global_reserve_used) {
            let (total, used) = (units.show(total), units.show(used));
            writeln!(out, "    Global reserve:\t\t{total:>width$}\t(used: {used})")?;
        }
        let has_several = if self.multiple_profiles { "yes" } else { "no" };
        writeln!(out, "    Multiple profiles:\t\t{has_several:>width$}")
    }
}
