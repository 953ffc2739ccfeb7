//! The status of the last scrub of a filesystem, in a text file: the lines of btrfs-progs, with some fields of our own behind them.
//!
//! ```text
//! scrub status:1
//! FSID:DEVID|data_extents_scrubbed:N|...|last_physical:N|t_start:N|t_resumed:N|duration:N|canceled:0|finished:1|...
//! ```
//! Our fields are counters that Linux lacks, and the place of the bytes on the host, which distinguishes the device from copies of it with
//! the same UUID.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use creamery_base::{DevId, Error, ErrorKind, Generation, Result, Uuid};

use super::{Counts, Ended};

const HEAD: &str = "scrub status:1";
/// Maximum characters of the file that a message quotes.
const QUOTED_MAX: usize = 60;
/// Maximum devices of a set here.
const DEVICES_MAX: usize = 4096;

/// The identity of a device, which differs from those of its copies.
///
/// ```
/// use creamery_base::Uuid;
/// use creamery_maint::scrub::Identity;
/// let one = Identity { uuid: Uuid::nil(), place: [1, 2, 0], path: "/srv/disk.img".into() };
/// assert_ne!(one, Identity { place: [1, 3, 0], ..one.clone() });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The UUID of the device in the filesystem.
    pub uuid: Uuid,
    /// The place of its bytes on the host ([`DeviceId::numbers`](creamery_device::DeviceId::numbers)).
    pub place: [u64; 3],
    /// Its path on the host.
    pub path: PathBuf,
}

/// Whether a scrub repairs. A scrub that is resumed keeps its mode.
///
/// ```
/// use creamery_maint::scrub::Mode;
/// assert_eq!(Mode::default(), Mode::Mends);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Bad blocks are repaired from good copies.
    #[default]
    Mends,
    /// Nothing is written.
    ReadsOnly,
}

/// The progress of a device's scrub, or its end.
///
/// ```no_run
/// # fn show(device: &creamery_maint::scrub::DeviceStatus) {
/// println!("device {}: {:?} after {} s", device.id, device.ended, device.seconds);
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceStatus {
    /// The number of the device in the filesystem.
    pub id: DevId,
    /// The identity of the device.
    pub identity: Identity,
    /// The counts of the scrub and of all that it resumed.
    pub counts: Counts,
    /// The time at which the scrub began, seconds since 1970.
    pub started: u64,
    /// The time of resuming, seconds since 1970; 0 if it was not resumed.
    pub resumed: u64,
    /// The duration, seconds.
    pub seconds: u64,
    /// The kind of end; `None` while it runs, or if it died.
    pub ended: Option<Ended>,
    /// Whether it repairs.
    pub mode: Mode,
    /// The last commit of the filesystem that the scrub has seen.
    pub generation: Generation,
    /// The part of its read errors, corruption and generation errors that the filesystem's own counters include.
    pub noted: [u64; 3],
}

/// The last scrub of a filesystem.
///
/// ```
/// use creamery_base::Uuid;
/// use creamery_maint::scrub::Status;
/// let none = Status { fsid: Uuid::nil(), devices: Vec::new() };
/// assert_eq!(Status::parse(none.to_text().as_bytes(), Uuid::nil())?, none);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The filesystem's UUID.
    pub fsid: Uuid,
    /// The devices, by number.
    pub devices: Vec<DeviceStatus>,
}

impl DeviceStatus {
    /// The status of a device whose scrub begins at its beginning; `now` is in seconds since 1970.
    pub(super) fn new(
        (id, identity): (DevId, Identity),
        (now, generation): (u64, Generation),
        mode: Mode,
    ) -> Self {
        let counts = Counts::default();
        let (started, resumed, seconds, ended) = (now, 0, 0, None);
        Self { id, identity, counts, started, resumed, seconds, ended, mode, generation, noted: [0; 3] }
    }

    /// Whether another scrub can go on where this one stopped.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.ended != Some(Ended::Whole)
    }
}

impl Status {
    /// Whether it repairs all devices.
    #[must_use]
    pub fn mode(&self) -> Mode {
        let reads_only = self.devices.iter().any(|device| device.mode == Mode::ReadsOnly);
        if reads_only { Mode::ReadsOnly } else { Mode::Mends }
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for device in &self.devices {
            let _ = write!(text, "{}:{}", self.fsid, device.id);
            let (mut counts, ended) = (device.counts, device.ended);
            for (name, number) in numbers_of(&mut counts) {
                let _ = write!(text, "|{name}:{number}");
            }
            let is_cut = ended.is_some_and(|ended| ended != Ended::Whole);
            let path = hex(device.identity.path.as_os_str().as_bytes());
            let [space, number, start] = device.identity.place;
            let [read, corruption, generation] = device.noted;
            let _ = writeln!(
                text,
                "|t_start:{}|t_resumed:{}|duration:{}|canceled:{}|finished:{}|failed:{}|readonly:{}|generation:{}|noted:{read}.{corruption}.{generation}|uuid:{}|place:{space}.{number}.{start}|path:{path}",
                device.started,
                device.resumed,
                device.seconds,
                u8::from(is_cut),
                u8::from(ended.is_some()),
                u8::from(ended == Some(Ended::Failed)),
                u8::from(device.mode == Mode::ReadsOnly),
                device.generation,
                device.identity.uuid,
            );
        }
        text
    }

    /// Parses the text of the file of the filesystem `fsid`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`]: the text is invalid, or of another filesystem.
    pub fn parse(text: &[u8], fsid: Uuid) -> Result<Self> {
        let text = std::str::from_utf8(text).map_err(|_| corrupt("it is not UTF-8"))?;
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        if head != HEAD {
            return Err(corrupt(format!("its first line is {}, expected {HEAD:?}", quoted(head))));
        }
        let mut devices: Vec<DeviceStatus> = Vec::new();
        for line in lines {
            let device = device_of(line, fsid)?;
            if devices.iter().any(|before| before.id == device.id) || devices.len() == DEVICES_MAX {
                return Err(corrupt(format!("device {} is a duplicate, or there are too many", device.id)));
            }
            devices.push(device);
        }
        devices.sort_by_key(|device| device.id);
        Ok(Self { fsid, devices })
    }
}

/// The counters by their names in btrfs-progs, in its order; ours follow.
fn numbers_of(counts: &mut Counts) -> [(&'static str, &mut u64); 17] {
    [
        ("data_extents_scrubbed", &mut counts.data_extents_scrubbed),
        ("tree_extents_scrubbed", &mut counts.tree_extents_scrubbed),
        ("data_bytes_scrubbed", &mut counts.data_bytes_scrubbed),
        ("tree_bytes_scrubbed", &mut counts.tree_bytes_scrubbed),
        ("read_errors", &mut counts.read_errors),
        ("csum_errors", &mut counts.csum_errors),
        ("verify_errors", &mut counts.verify_errors),
        ("no_csum", &mut counts.no_csum),
        ("super_errors", &mut counts.super_errors),
        ("uncorrectable_errors", &mut counts.uncorrectable_errors),
        ("corrected_errors", &mut counts.corrected_errors),
        ("last_physical", &mut counts.last_physical),
        ("unverified_errors", &mut counts.unverified_errors),
        ("parity_bytes_scrubbed", &mut counts.parity_bytes_scrubbed),
        ("differing", &mut counts.differing),
        ("generation_errors", &mut counts.generation_errors),
        ("size", &mut counts.size),
    ]
}

fn device_of(line: &str, fsid: Uuid) -> Result<DeviceStatus> {
    let mut fields = line.split('|');
    let (of, id) = pair(fields.next().unwrap_or_default())?;
    if of.parse::<Uuid>().ok() != Some(fsid) {
        return Err(corrupt(format!("it is of the filesystem {}, expected {fsid}", quoted(of))));
    }
    let mut device = DeviceStatus {
        id: DevId::new(number(id)?),
        identity: Identity { uuid: Uuid::nil(), place: [0; 3], path: PathBuf::new() },
        counts: Counts::default(),
        started: 0,
        resumed: 0,
        seconds: 0,
        ended: None,
        mode: Mode::Mends,
        generation: Generation::new(0),
        noted: [0; 3],
    };
    let (mut is_cut, mut is_finished, mut is_failed) = (false, false, false);
    for field in fields {
        let (name, value) = pair(field)?;
        match name {
            "t_start" => device.started = number(value)?,
            "t_resumed" => device.resumed = number(value)?,
            "duration" => device.seconds = number(value)?,
            "canceled" => is_cut = number(value)? != 0,
            "finished" => is_finished = number(value)? != 0,
            "readonly" if number(value)? != 0 => device.mode = Mode::ReadsOnly,
            "readonly" => {}
            "generation" => device.generation = Generation::new(number(value)?),
            "failed" => is_failed = number(value)? != 0,
            "uuid" => {
                device.identity.uuid =
                    value.parse().map_err(|_| corrupt(format!("uuid {}", quoted(value))))?
            }
            "noted" => device.noted = three(value)?,
            "place" => device.identity.place = three(value)?,
            "path" => device.identity.path = OsString::from_vec(unhex(value)?).into(),
            "csum_discards" | "malloc_errors" => drop(number(value)?),
            _ => {
                let mut numbers = numbers_of(&mut device.counts).into_iter();
                let known = numbers.find(|(known, _)| *known == name);
                let (_, known) = known.ok_or_else(|| corrupt(format!("unknown field {}", quoted(name))))?;
                *known = number(value)?;
            }
        }
    }
    device.ended = is_finished.then_some(match (is_failed, is_cut) {
        (true, _) => Ended::Failed,
        (false, true) => Ended::Cancelled,
        (false, false) => Ended::Whole,
    });
    Ok(device)
}

fn pair(field: &str) -> Result<(&str, &str)> {
    field.split_once(':').ok_or_else(|| corrupt(format!("the field {} has no value", quoted(field))))
}

fn number(value: &str) -> Result<u64> {
    value.parse().map_err(|_| corrupt(format!("{} is not a number", quoted(value))))
}

fn three(value: &str) -> Result<[u64; 3]> {
    let numbers = value.split('.').map(number).collect::<Result<Vec<_>>>()?;
    numbers.try_into().map_err(|_| corrupt(format!("expected three numbers, found {}", quoted(value))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect::<Option<_>>();
    bytes.filter(|_| rest.is_empty()).ok_or_else(|| corrupt(format!("path {}", quoted(text))))
}

/// Text of the file for a message: as much of it as a line has room for.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((at, _)) => format!("{:?}...", &text[..at]),
        None => format!("{text:?}"),
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSID: &str = "88791df7-6599-4d7f-b350-af11d7e1db90";

    fn status(ended: Option<Ended>) -> Status {
        let mut counts = Counts::default();
        for (place, (_, number)) in numbers_of(&mut counts).into_iter().enumerate() {
            *number = place as u64 + 7;
        }
        let identity = Identity {
            uuid: "ebe4c258-8ecc-4a2c-8715-3e0344eff959".parse().unwrap(),
            place: [1, u64::MAX, 1 << 20],
            path: OsString::from_vec(b"/a|b:c\n\xff".to_vec()).into(),
        };
        let device = |id| DeviceStatus {
            id: DevId::new(id),
            identity: identity.clone(),
            counts,
            started: 1_795_960_560,
            resumed: 3,
            seconds: 2,
            ended,
            mode: if id == 1 { Mode::ReadsOnly } else { Mode::Mends },
            generation: Generation::new(id),
            noted: [1, id, 3],
        };
        Status { fsid: FSID.parse().unwrap(), devices: vec![device(1), device(u64::MAX)] }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for ended in [None, Some(Ended::Whole), Some(Ended::Cancelled), Some(Ended::Failed)] {
            let status = status(ended);
            assert_eq!(Status::parse(status.to_text().as_bytes(), status.fsid).unwrap(), status);
        }
    }

    #[test]
    fn a_file_of_btrfs_progs_is_read() {
        let line = "1|data_extents_scrubbed:3564|csum_discards:0|malloc_errors:0|last_physical:990707712|t_start:5|canceled:1|finished:1";
        let text = format!("{HEAD}\n{FSID}:{line}\n");
        let read = Status::parse(text.as_bytes(), FSID.parse().unwrap()).unwrap();
        assert_eq!(read.devices[0].counts.last_physical, 990_707_712);
        assert_eq!(read.devices[0].ended, Some(Ended::Cancelled));
    }

    #[test]
    fn a_file_that_lies_is_refused_by_what_is_wrong() {
        let (other, fsid) = ("ebe4c258-8ecc-4a2c-8715-3e0344eff959", FSID.parse().unwrap());
        for (text, word) in [
            (String::new(), "first line"),
            ("scrub status:2\n".to_owned(), "first line"),
            (format!("{HEAD}\n{other}:1|finished:1\n"), other),
            (format!("{HEAD}\n{FSID}:1|finished\n"), "no value"),
            (format!("{HEAD}\n{FSID}:1|finished:-1\n"), "not a number"),
            (format!("{HEAD}\n{FSID}:1|last_physical:18446744073709551616\n"), "not a number"),
            (format!("{HEAD}\n{FSID}:1|colour:1\n"), "colour"),
            (format!("{HEAD}\n{FSID}:1|path:abc\n"), "path"),
            (format!("{HEAD}\n{FSID}:1|place:1.2\n"), "three numbers"),
            (format!("{HEAD}\n{FSID}:1|finished:1\n{FSID}:1|finished:1\n"), "duplicate"),
        ] {
            let error = Status::parse(text.as_bytes(), fsid).unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
        Status::parse(b"scrub status:1\n\xff", fsid).unwrap_err();
        let long = "\u{e4}".repeat(1 << 20);
        for text in [
            long.clone(),
            format!("{HEAD}\n{long}"),
            format!("{HEAD}\n{long}:1"),
            format!("{HEAD}\n{FSID}:{long}"),
            format!("{HEAD}\n{FSID}:1|{long}:1"),
            format!("{HEAD}\n{FSID}:1|uuid:{long}"),
            format!("{HEAD}\n{FSID}:1|place:{long}"),
            format!("{HEAD}\n{FSID}:1|path:{long}"),
        ] {
            let error = Status::parse(text.as_bytes(), fsid).unwrap_err().to_string();
            assert!(error.len() < 400, "a message of {} bytes", error.len());
        }
    }
}
