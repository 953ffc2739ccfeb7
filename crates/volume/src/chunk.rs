//! A chunk: a logical range with its places on devices, and its item in the chunk tree and in the superblock.

use creamery_base::{DevId, Error, ErrorKind, Logical, Result, Uuid};
use creamery_format::{BlockGroupFlags, RawChunk, RawStripe, STRIPE_LEN};
use zerocopy::IntoBytes;

use crate::index::index;
use crate::layout::Layout;
use crate::rows::Rows;

/// The largest chunk that is accepted. Linux makes none beyond 10 GiB; this only keeps sums from wrapping.
const LEN_MAX: u64 = 1 << 56;

/// A logical range and its places on devices.
///
/// ```
/// use creamery_base::{DevId, Logical, Uuid};
/// use creamery_format::BlockGroupFlags;
/// use creamery_volume::{Chunk, Stripe};
/// let stripe = |offset| Stripe { dev: DevId::new(1), offset, dev_uuid: Uuid::nil() };
/// let chunk = Chunk::new(
///     Logical::new(22020096),
///     8 << 20,
///     BlockGroupFlags::SYSTEM | BlockGroupFlags::DUP,
///     4096,
///     vec![stripe(22020096), stripe(30408704)],
/// );
/// assert_eq!(Chunk::from_item(chunk.start, &chunk.to_item(), 4096)?, chunk);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// First address.
    pub start: Logical,
    /// Bytes.
    pub len: u64,
    /// Its type and its profile.
    pub flags: BlockGroupFlags,
    /// Bytes of one stripe element.
    pub stripe_len: u64,
    /// Alignment hint, kept as found.
    pub io_align: u32,
    /// Width hint, kept as found.
    pub io_width: u32,
    /// Sector size at its creation.
    pub sector_size: u32,
    /// The tree that owns it: the extent tree.
    pub owner: u64,
    /// Copies within a RAID10 chunk; otherwise 0 or 1.
    pub sub_stripes: u16,
    /// Its parts on devices.
    pub stripes: Vec<Stripe>,
}

/// A chunk's part on one device.
///
/// ```
/// use creamery_base::{DevId, Uuid};
/// use creamery_volume::Stripe;
/// let stripe = Stripe { dev: DevId::new(1), offset: 1 << 20, dev_uuid: Uuid::nil() };
/// assert_eq!(stripe.clone(), stripe);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// The device.
    pub dev: DevId,
    /// The offset where it begins on the device.
    pub offset: u64,
    /// The device's UUID.
    pub dev_uuid: Uuid,
}

impl Chunk {
    /// Creates a chunk with the fields that Linux gives it.
    ///
    /// # Panics
    /// If the number of stripes does not suit the profile, or an address is not aligned.
    #[must_use]
    pub fn new(
        start: Logical,
        len: u64,
        flags: BlockGroupFlags,
        sector_size: u32,
        stripes: Vec<Stripe>,
    ) -> Self {
        let sub_stripes = if flags.contains(BlockGroupFlags::RAID10) { 2 } else { 1 };
        let io_unit = u32::try_from(STRIPE_LEN).expect("64 KiB fit");
        let chunk = Self {
            start,
            len,
            flags,
            stripe_len: STRIPE_LEN,
            io_align: io_unit,
            io_width: io_unit,
            sector_size,
            owner: creamery_base::TreeId::EXTENT.get(),
            sub_stripes,
            stripes,
        };
        if let Err(reason) = chunk.check(sector_size) {
            panic!("a chunk that no reader would accept: {reason}");
        }
        chunk
    }

    /// Parses the item of the chunk at `start`, and checks every field.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with the invalid field.
    pub fn from_item(start: Logical, bytes: &[u8], sector_size: u32) -> Result<Self> {
        let view = creamery_format::Chunk::parse(bytes).map_err(|kind| corrupt(start, &kind))?;
        Self::from_view(start, &view, sector_size)
    }

    /// Parses and checks an item that was split off the superblock's array.
    pub(crate) fn from_view(
        start: Logical,
        view: &creamery_format::Chunk<'_>,
        sector_size: u32,
    ) -> Result<Self> {
        let raw = view.head;
        let chunk = Self {
            start,
            len: raw.length.get(),
            flags: view.flags(),
            stripe_len: raw.stripe_len.get(),
            io_align: raw.io_align.get(),
            io_width: raw.io_width.get(),
            sector_size: raw.sector_size.get(),
            owner: raw.owner.get(),
            sub_stripes: raw.sub_stripes.get(),
            stripes: view.stripes.iter().map(Stripe::from_raw).collect(),
        };
        chunk.check(sector_size).map_err(|reason| corrupt(start, &reason))?;
        Ok(chunk)
    }

    /// Returns the bytes of its item.
    #[must_use]
    pub fn to_item(&self) -> Vec<u8> {
        let raw = RawChunk {
            length: self.len.into(),
            owner: self.owner.into(),
            stripe_len: self.stripe_len.into(),
            kind: self.flags.bits().into(),
            io_align: self.io_align.into(),
            io_width: self.io_width.into(),
            sector_size: self.sector_size.into(),
            num_stripes: self.stripe_count().into(),
            sub_stripes: self.sub_stripes.into(),
        };
        let mut bytes = raw.as_bytes().to_vec();
        for stripe in &self.stripes {
            bytes.extend_from_slice(stripe.to_raw().as_bytes());
        }
        bytes
    }

    /// Returns the first address after it.
    #[must_use]
    pub fn end(&self) -> Logical {
        self.start + self.len // checked when it was made
    }

    /// Returns the bytes that each stripe takes on its device.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        self.len / u64::from(self.layout().columns)
    }

    /// Whether each stripe is on a device of its own, as every profile but DUP promises. If not, the chunk can be
    /// read, but no new chunk of its profile can be made.
    #[must_use]
    pub fn is_spread_as_promised(&self) -> bool {
        let others = |number: usize| &self.stripes[..number];
        self.flags.contains(BlockGroupFlags::DUP)
            || self
                .stripes
                .iter()
                .enumerate()
                .all(|(number, stripe)| others(number).iter().all(|other| other.dev != stripe.dev))
    }

    /// Whether it has stripes of parity: RAID5 and RAID6.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        self.layout().parity > 0
    }

    /// Returns the bytes of data in a full stripe: one element of each data column, in a row.
    #[must_use]
    pub fn full_stripe_bytes(&self) -> u64 {
        self.stripe_len.saturating_mul(self.layout().columns.into())
    }

    /// Whether all of it can be read without the devices for which `is_missing` returns true.
    ///
    /// ```
    /// use creamery_base::{DevId, Logical, Uuid};
    /// use creamery_format::BlockGroupFlags;
    /// use creamery_volume::{Chunk, Stripe};
    /// let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
    /// let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID6;
    /// let chunk = Chunk::new(Logical::new(1 << 30), 2 << 20, flags, 4096, (1..=4).map(stripe).collect());
    /// assert!(chunk.is_readable_without(&|dev| dev.get() <= 2));
    /// assert!(!chunk.is_readable_without(&|dev| dev.get() <= 3));
    /// ```
    #[must_use]
    pub fn is_readable_without(&self, is_missing: &dyn Fn(DevId) -> bool) -> bool {
        let layout = self.layout();
        let missing = |stripes: &[Stripe]| stripes.iter().filter(|stripe| is_missing(stripe.dev)).count();
        match layout.parity {
            0 => self.stripes.chunks(layout.copies.into()).all(|copies| missing(copies) < copies.len()),
            parity => missing(&self.stripes) <= parity.into(),
        }
    }

    /// Whether a range of it can be read without some devices. Bytes of the range outside the chunk are ignored.
    ///
    /// ```
    /// use creamery_base::{DevId, Logical, Uuid};
    /// use creamery_format::BlockGroupFlags;
    /// use creamery_volume::{Chunk, Stripe};
    /// let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
    /// let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID0;
    /// let chunk = Chunk::new(Logical::new(1 << 30), 2 << 20, flags, 4096, (1..=2).map(stripe).collect());
    /// let without_second = |at, len| chunk.has_range_without(Logical::new(at), len, &|dev| dev.get() == 2);
    /// assert!(without_second(1 << 30, 65536));
    /// assert!(!without_second(1 << 30, 65537));
    /// ```
    #[must_use]
    pub fn has_range_without(&self, at: Logical, len: u64, is_missing: &dyn Fn(DevId) -> bool) -> bool {
        if self.is_readable_without(is_missing) {
            return true;
        }
        let from = at.get().saturating_sub(self.start.get()).min(self.len);
        let len = len.min(self.len - from);
        if let Some(rows) = Rows::of(self) {
            // After as many rows as there are stripes everything repeats itself.
            let round = self.stripes.len() * self.stripes.len();
            let mut elements = rows.elements(from, len).take(round);
            return !elements.any(|element| {
                let stripe = rows.stripe_of(element.row, element.column);
                is_missing(self.stripes[stripe].dev)
            });
        }
        let layout = self.layout();
        let (columns, copies) = (u64::from(layout.columns), usize::from(layout.copies));
        let end = (from + len).div_ceil(self.stripe_len);
        let mut elements = (from / self.stripe_len..end).take(index(columns));
        elements.all(|element| {
            let first = index(element % columns) * copies;
            self.stripes[first..first + copies].iter().any(|stripe| !is_missing(stripe.dev))
        })
    }

    /// Whether `other` has the same meaning. Sub stripes count for RAID10 alone: for other profiles programs write 0 or 1, and btrfs-image
    /// sometimes one, sometimes the other.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let counts = self.flags.contains(BlockGroupFlags::RAID10);
        let sub_stripes = if counts { self.sub_stripes } else { other.sub_stripes };
        Self { sub_stripes, ..self.clone() } == *other
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout_if_valid().expect("the number of stripes was checked when the chunk was made")
    }

    fn layout_if_valid(&self) -> Option<Layout> {
        Layout::of(self.flags, self.stripe_count(), self.sub_stripes)
    }

    fn stripe_count(&self) -> u16 {
        u16::try_from(self.stripes.len())
            .expect("the number of stripes was read from, or will be put in, 16 bits")
    }

    /// Checks all fields of a chunk with a known place.
    fn check(&self, sector_size: u32) -> Result<(), String> {
        let unit = u64::from(sector_size);
        let aligned = |what: &str, value: u64| match value.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(format!("{what} is not aligned, expected a multiple of {unit}, found {value}")),
        };
        aligned("address", self.start.get())?;
        aligned("length", self.len)?;
        if self.len == 0 || self.len > LEN_MAX || self.start.checked_add(self.len).is_none() {
            return Err(format!("length out of range, expected [{unit}, {LEN_MAX}], found {}", self.len));
        }
        if self.stripe_len != STRIPE_LEN {
            return Err(format!("wrong stripe length, expected {STRIPE_LEN}, found {}", self.stripe_len));
        }
        if self.sector_size != sector_size {
            return Err(format!("wrong sector size, expected {sector_size}, found {}", self.sector_size));
        }
        self.check_flags()?;
        let Some(layout) = self.layout_if_valid() else {
            let (stripes, sub_stripes) = (self.stripes.len(), self.sub_stripes);
            return Err(format!(
                "{stripes} stripes and {sub_stripes} sub stripes do not suit profile {}",
                self.flags
            ));
        };
        if !self.len.is_multiple_of(u64::from(layout.columns)) {
            return Err(format!("length {} cannot be dealt out to {} stripes", self.len, layout.columns));
        }
        for stripe in &self.stripes {
            aligned("stripe offset", stripe.offset)?;
            if stripe.offset.checked_add(self.len).is_none() {
                return Err(format!("stripe offset out of range, found {}", stripe.offset));
            }
        }
        Ok(())
    }

    fn check_flags(&self) -> Result<(), String> {
        let known = BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES;
        if !known.contains(self.flags) {
            return Err(format!("unknown type or profile, found 0x{:x}", self.flags.bits()));
        }
        let types = self.flags & BlockGroupFlags::TYPES;
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        if types.bits().count_ones() != 1 && types != mixed {
            return Err(format!("impossible type, found {}", self.flags));
        }
        Ok(())
    }
}

fn corrupt(start: Logical, reason: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("corrupt chunk: logical={start}, {reason}"))
}

impl Stripe {
    fn from_raw(raw: &RawStripe) -> Self {
        Self {
            dev: DevId::new(raw.devid.get()),
            offset: raw.offset.get(),
            dev_uuid: Uuid::from_bytes(raw.dev_uuid),
        }
    }

    fn to_raw(&self) -> RawStripe {
        RawStripe {
            devid: self.dev.get().into(),
            offset: self.offset.into(),
            dev_uuid: self.dev_uuid.into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dup() -> Chunk {
        let stripe = |offset| Stripe { dev: DevId::new(1), offset, dev_uuid: Uuid::nil() };
        let flags = BlockGroupFlags::SYSTEM | BlockGroupFlags::DUP;
        Chunk::new(Logical::new(1 << 20), 8 << 20, flags, 4096, vec![stripe(1 << 20), stripe(9 << 20)])
    }

    fn reason(edit: impl Fn(&mut Chunk)) -> String {
        let mut chunk = dup();
        edit(&mut chunk);
        let error = Chunk::from_item(chunk.start, &chunk.to_item(), 4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    }

    #[test]
    fn sub_stripes_count_for_raid10_alone() {
        let with = |flags, sub_stripes| Chunk { flags, sub_stripes, ..dup() };
        let (one, ten) = (BlockGroupFlags::SYSTEM, BlockGroupFlags::DATA | BlockGroupFlags::RAID10);
        assert!(with(one, 0).is_as(&with(one, 1)) && !with(ten, 0).is_as(&with(ten, 2)));
        assert!(!dup().is_as(&Chunk { len: 4 << 20, ..dup() }) && !with(one, 1).is_as(&with(ten, 1)));
    }

    #[test]
    fn an_impossible_chunk_is_refused_with_the_field() {
        let table = [
            (reason(|it| it.len = 0), "length"),
            (reason(|it| it.len = 5000), "length"),
            (reason(|it| it.len = u64::MAX - 4095), "length"),
            (reason(|it| it.start = Logical::new(1)), "address is not aligned"),
            (reason(|it| it.start = Logical::new(u64::MAX - 4095)), "length out of range"),
            (reason(|it| it.stripe_len = 0), "stripe length"),
            (reason(|it| it.stripe_len = 65535), "stripe length"),
            (reason(|it| it.sector_size = 512), "sector size"),
            (reason(|it| it.stripes[1].offset = 1), "stripe offset is not aligned"),
            (reason(|it| it.stripes[1].offset = u64::MAX - 4095), "stripe offset out of range"),
            (reason(|it| it.stripes.clear()), "stripes"),
            (reason(|it| it.stripes.truncate(1)), "stripes"),
            (reason(|it| it.flags |= BlockGroupFlags::RAID1), "profile"),
            (reason(|it| it.flags |= BlockGroupFlags::DATA), "type"),
            (reason(|it| it.flags = BlockGroupFlags::DUP), "type"),
            (reason(|it| it.flags |= BlockGroupFlags::from_bits_retain(1 << 40)), "unknown type or profile"),
        ];
        for (message, words) in table {
            assert!(message.contains(words) && message.starts_with("corrupt chunk: logical="), "{message}");
        }
    }

    #[test]
    fn copies_on_one_device_are_told_from_copies_on_two() {
        let mut chunk = dup();
        assert!(chunk.is_spread_as_promised(), "DUP promises nothing else");
        chunk.flags = BlockGroupFlags::SYSTEM | BlockGroupFlags::RAID1;
        let mut chunk = Chunk::from_item(chunk.start, &chunk.to_item(), 4096).expect("it can be read");
        assert!(!chunk.is_spread_as_promised());
        chunk.stripes[1].dev = DevId::new(2);
        assert!(chunk.is_spread_as_promised());
    }

    #[test]
    fn an_item_of_any_other_length_is_refused() {
        let item = dup().to_item();
        assert_eq!(item.len(), 112);
        for len in (0..item.len()).chain([113]) {
            let mut bytes = item.clone();
            bytes.resize(len, 0);
            assert!(Chunk::from_item(Logical::new(1 << 20), &bytes, 4096).is_err(), "{len} bytes");
        }
    }
}
