//! `filesystem usage -T`: the use of each device, in columns.

use std::io;

use super::facts::{FilesystemUsage, Groups, UsageDevice};
use crate::columns::{self, Column};
use crate::output::Output;
use crate::units::UnitArgs;

pub(super) fn print(out: &mut Output, facts: &FilesystemUsage, units: &UnitArgs) -> io::Result<()> {
    let groups = facts.in_order();
    let devices = &facts.devices;
    let name = |text: &str| vec![String::new(), text.to_owned()];
    let path = |device: &UsageDevice| match &device.path {
        Some(path) => path.display().to_string(),
        None => "missing".to_owned(),
    };
    let ids = devices.iter().map(|device| device.id.to_string());
    let paths = devices.iter().map(path);
    let mut columns = vec![
        Column {
            heads: name("Id"),
            cells: ids.chain([String::new(), String::new()]).collect(),
            is_text: false,
        },
        Column {
            heads: name("Path"),
            cells: paths.chain(["Total".to_owned(), "Used".to_owned()]).collect(),
            is_text: true,
        },
    ];
    columns.extend(groups.iter().map(|group| of_groups(group, devices, units)));
    let of_devices = |heading: &str, of: fn(&UsageDevice) -> u64| {
        let is_none = |bytes: u64| bytes == 0 && heading == "Slack";
        let cell = |bytes: u64| if is_none(bytes) { "-".to_owned() } else { units.show(bytes) };
        let all = units.show(devices.iter().map(of).sum());
        let cells = devices.iter().map(|device| cell(of(device))).chain([all, String::new()]);
        Column { heads: name(heading), cells: cells.collect(), is_text: false }
    };
    columns.push(of_devices("Unallocated", UsageDevice::unallocated));
    columns.push(of_devices("Total", |device| device.total));
    columns.push(of_devices("Slack", |device| device.slack));
    columns::print(out, &columns, Some(devices.len()))
}

/// The bytes of each device in groups of one kind and profile, and the total and used bytes, each copy counted once.
fn of_groups(Groups { sum, on }: &Groups, devices: &[UsageDevice], units: &UnitArgs) -> Column {
    let here = |device: &UsageDevice| {
        let found = on.iter().find(|(id, _)| *id == device.id);
        found.map_or_else(|| "-".to_owned(), |(_, bytes)| units.show(*bytes))
    };
    let cells = devices.iter().map(here).chain([units.show(sum.total), units.show(sum.used)]);
    Column { heads: vec![sum.kind.clone(), sum.profile.clone()], cells: cells.collect(), is_text: false }
}
