//! The disk map: the content of each device, in the order of its bytes.

use creamery_base::{DevId, HumanSize};

use super::svg::{Area, Picture, clipped};
use crate::Filesystem;
use crate::volume::BlockGroups;

/// Smallest width of a part, in pixels, so that no part is invisible.
const PART_MIN: f64 = 0.4;
/// Pixels of a row, and of the gap behind it.
const ROW: f64 = 22.0;
const GAP: f64 = 4.0;
/// Rows of one device.
const ROWS_MAX: usize = 48;
/// Chunks that a row shows well.
const CHUNKS_IN_ROW: usize = 24;
/// Marks of damage that are drawn.
const MARKS_MAX: usize = 4096;

/// All devices of a filesystem, and the disk around its partition.
#[derive(Default, Debug)]
pub(super) struct DiskMap {
    devices: Vec<Device>,
    frame: Option<Frame>,
}

#[derive(Debug)]
struct Device {
    id: DevId,
    len: u64,
    /// Parts, by their positions.
    parts: Vec<Part>,
    /// Positions of damaged bytes.
    damage: Vec<u64>,
}

/// A chunk's part of a device.
#[derive(Debug)]
struct Part {
    offset: u64,
    len: u64,
    logical: u64,
    groups: BlockGroups,
}

/// The disk around a partition.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) len: u64,
    pub(super) partitions: Vec<FramePart>,
}

/// A partition of the disk.
#[derive(Debug)]
pub(super) struct FramePart {
    pub(super) start: u64,
    pub(super) len: u64,
    /// The name of the partition, or its number.
    pub(super) name: String,
    /// All details from the table.
    pub(super) told: String,
    /// Whether it holds the filesystem.
    pub(super) is_ours: bool,
}

impl DiskMap {
    /// The map of `fs`, in the disk `frame`.
    pub(super) fn of(fs: &Filesystem, frame: Option<Frame>) -> Self {
        let engine = fs.fs.engine();
        let mut devices: Vec<Device> = engine
            .devices()
            .into_iter()
            .map(|device| Device {
                id: device.id,
                len: device.total_bytes,
                parts: Vec::new(),
                damage: Vec::new(),
            })
            .collect();
        let uses = engine.group_uses();
        for chunk in engine.volume().chunks() {
            let used = uses.iter().find(|(start, _)| *start == chunk.start).map_or(0, |(_, used)| *used);
            let groups = BlockGroups::with_flags(chunk.flags.bits(), chunk.len, used);
            for stripe in &chunk.stripes {
                let Some(device) = devices.iter_mut().find(|device| device.id == stripe.dev) else {
                    continue;
                };
                let (offset, len, logical) = (stripe.offset, chunk.stripe_bytes(), chunk.start.get());
                device.parts.push(Part { offset, len, logical, groups: groups.clone() });
            }
        }
        devices.iter_mut().for_each(|device| device.parts.sort_by_key(|part| part.offset));
        Self { devices, frame }
    }

    /// Marks the tree block or sector at an address of the filesystem, in each copy.
    pub(super) fn mark_logical(&mut self, logical: u64) {
        for device in &mut self.devices {
            // The position in a striped chunk is not computed: the mark is where the byte would be if the chunk was in one piece.
            let places = device.parts.iter().filter_map(|part| {
                let within =
                    logical.checked_sub(part.logical).filter(|within| *within < part.groups.total)?;
                Some(part.offset + within.min(part.len.saturating_sub(1)))
            });
            let places: Vec<u64> = places.collect();
            device.damage.extend(places.into_iter().take(MARKS_MAX.saturating_sub(device.damage.len())));
        }
    }

    /// Marks a byte of a device.
    pub(super) fn mark(&mut self, id: u64, offset: u64) {
        let device = self.devices.iter_mut().find(|device| device.id.get() == id);
        if let Some(device) = device.filter(|device| device.damage.len() < MARKS_MAX) {
            device.damage.push(offset);
        }
    }

    /// Draws the map.
    pub(super) fn picture(&self, width: f64) -> String {
        let mut heights: Vec<f64> = self.devices.iter().map(Device::height).collect();
        if self.frame.is_some() {
            heights.insert(0, 2.0 * ROW + GAP);
        }
        let height = heights.iter().sum::<f64>() + 1.5 * ROW;
        let mut picture = Picture::new(width, height, "disk map");
        let mut y = 0.0;
        if let Some(frame) = &self.frame {
            frame.draw(&mut picture, width, y);
            y += 2.0 * ROW + GAP;
        }
        for device in &self.devices {
            device.draw(&mut picture, width, y);
            y += device.height();
        }
        legend(&mut picture, y + ROW);
        picture.finish()
    }
}

/// The class of a kind of block group.
fn class_of(kind: &str) -> &'static str {
    match kind {
        "Data" => "data",
        "Metadata" => "metadata",
        "System" => "system",
        _ => "mixed",
    }
}

fn legend(picture: &mut Picture, y: f64) {
    let kinds = [
        ("data", "data"),
        ("metadata", "metadata"),
        ("system", "system"),
        ("mixed", "both"),
        ("empty", "not allocated"),
        ("bad", "damaged"),
    ];
    for (number, (class, words)) in kinds.into_iter().enumerate() {
        // There are six entries.
        let x = 4.0 + 120.0 * number as f64;
        picture.area(Area { x, y: y - 10.0, width: 10.0, height: 10.0 }, class, None);
        picture.words(x + 14.0, y, "faint", words);
    }
}

impl Frame {
    fn draw(&self, picture: &mut Picture, width: f64, y: f64) {
        picture.words(4.0, y + ROW - 7.0, "", &format!("the disk, {}", HumanSize(self.len)));
        let whole = Area { x: 0.0, y: y + ROW, width, height: ROW - GAP };
        picture.area(whole, "empty", None);
        let scale = width / (self.len.max(1) as f64);
        for FramePart { start, len, name, told, is_ours } in &self.partitions {
            let area = Area { x: *start as f64 * scale, width: (*len as f64 * scale).max(PART_MIN), ..whole };
            let told = format!("{told} from byte {start} on");
            picture.area(area, if *is_ours { "data" } else { "empty" }, Some(&told));
            picture.area(area, if *is_ours { "ours" } else { "frame" }, None);
            picture.words(area.x + 4.0, area.y + 13.0, "", &clipped(name, area.width - 8.0));
        }
    }
}

impl Device {
    fn rows(&self) -> usize {
        (self.parts.len() / CHUNKS_IN_ROW + 1).min(ROWS_MAX)
    }

    /// The height in pixels, with the title.
    fn height(&self) -> f64 {
        ROW + self.rows() as f64 * (ROW + GAP)
    }

    fn draw(&self, picture: &mut Picture, width: f64, y: f64) {
        let used: u64 = self.parts.iter().map(|part| part.len).fold(0, u64::saturating_add);
        let title =
            format!("device {}, {}, of which chunks have {}", self.id, HumanSize(self.len), HumanSize(used));
        picture.words(4.0, y + ROW - 7.0, "", &title);
        let rows = self.rows();
        let len = self.len.max(1) as f64;
        let in_row = len / rows as f64;
        let top = |row: usize| y + ROW + row as f64 * (ROW + GAP);
        for row in 0..rows {
            picture.area(Area { x: 0.0, y: top(row), width, height: ROW }, "empty", None);
        }
        // A part that crosses the end of a row continues in the next row.
        let pieces = |from: f64, to: f64| {
            (0..rows).filter_map(move |row| {
                let (begin, end) = (row as f64 * in_row, (row + 1) as f64 * in_row);
                let (from, to) = (from.max(begin), to.min(end));
                let scale = width / in_row;
                (from < to).then(|| Area {
                    x: (from - begin) * scale,
                    y: top(row),
                    width: ((to - from) * scale).max(PART_MIN),
                    height: ROW,
                })
            })
        };
        for part in &self.parts {
            let BlockGroups { kind, profile, total, used, .. } = &part.groups;
            let class = class_of(kind);
            let fill = if *total == 0 { 0.0 } else { (*used as f64 / *total as f64).clamp(0.0, 1.0) };
            let told = format!(
                "{kind}, {profile}: {} of {} used; byte {} of the device, logical {}",
                HumanSize(*used),
                HumanSize(*total),
                part.offset,
                part.logical
            );
            let (from, to) = (part.offset as f64, part.offset.saturating_add(part.len) as f64);
            for area in pieces(from, to.min(len)) {
                picture.area(area, &format!("{class} light"), Some(&told));
                let height = area.height * fill;
                picture.area(Area { y: area.y + area.height - height, height, ..area }, class, Some(&told));
                picture.area(area, "frame", None);
            }
        }
        for at in &self.damage {
            let at = *at as f64;
            for area in pieces(at, (at + in_row / width).min(len)) {
                picture.area(
                    Area { width: area.width.max(2.0), ..area },
                    "bad",
                    Some(&format!("damaged at byte {at}")),
                );
            }
        }
    }
}
