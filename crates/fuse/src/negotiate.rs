//! `INIT`: the kernel's offer, the server's requests, and the agreement.

use creamery_base::{Error, ErrorKind};

use crate::protocol::{InitFlags, MAJOR, MINOR, MINOR_MIN, wire};

/// The largest write that is requested, and the size of the buffers for it.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// Extended attributes of 64 KiB, with name and header, must fit a request.
const MAX_WRITE_MIN: u32 = 128 << 10;

/// The proposals of both sides, before the answer. [`Operations::init`](crate::Operations::init) may
/// change those of the server.
///
/// ```
/// use creamery_fuse::{Negotiation, protocol::InitFlags};
/// fn init(negotiation: &mut Negotiation) {
///     // We store ACLs and clear setuid and setgid when told to.
///     negotiation.want(InitFlags::POSIX_ACL | InitFlags::HANDLE_KILLPRIV_V2);
/// }
/// # let mut negotiation = Negotiation::offered(45, InitFlags::all(), 131_072);
/// # init(&mut negotiation);
/// # assert!(negotiation.agreed().contains(InitFlags::DONT_MASK));
/// ```
#[derive(Clone, Debug)]
pub struct Negotiation {
    minor: u32,
    offered: InitFlags,
    wanted: InitFlags,
    /// Bytes the kernel may read ahead; at most what it offers.
    pub max_readahead: u32,
    /// Largest write, and largest read; between 128 KiB and 1 MiB, a multiple of the page.
    pub max_write: u32,
    /// The number of background requests (readahead, writeback) that may be in flight.
    pub max_background: u16,
    /// The number of background requests from which the kernel counts the server as congested.
    pub congestion_threshold: u16,
}

/// Capabilities without a duty of the filesystem.
const SAFE: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::HAS_IOCTL_DIR)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::NO_OPEN_SUPPORT)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::ABORT_ERROR)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::INIT_EXT)
    .union(InitFlags::HAS_EXPIRE_ONLY)
    .union(InitFlags::DIRECT_IO_ALLOW_MMAP);

/// Capabilities that this transport does not support.
const NEVER: InitFlags = InitFlags::INIT_RESERVED
    .union(InitFlags::POSIX_LOCKS)
    .union(InitFlags::FLOCK_LOCKS)
    .union(InitFlags::SPLICE_READ)
    .union(InitFlags::SPLICE_WRITE)
    .union(InitFlags::SPLICE_MOVE)
    .union(InitFlags::MAP_ALIGNMENT)
    .union(InitFlags::PASSTHROUGH)
    .union(InitFlags::HAS_RESEND)
    .union(InitFlags::OVER_IO_URING)
    .union(InitFlags::REQUEST_TIMEOUT);

impl Negotiation {
    /// A kernel's offer, and the usual requests.
    #[must_use]
    pub const fn offered(minor: u32, offered: InitFlags, max_readahead: u32) -> Self {
        Self {
            minor,
            offered,
            wanted: SAFE,
            max_readahead,
            max_write: MAX_WRITE,
            max_background: 64,
            congestion_threshold: 48,
        }
    }

    pub(crate) fn from_wire(init: &wire::InitIn, flags2: u32) -> Result<Self, Error> {
        if init.minor < MINOR_MIN {
            let what = format!("expected FUSE 7.{MINOR_MIN} or later (Linux 5.4), found 7.{}", init.minor);
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let bits = u64::from(init.flags) | u64::from(flags2) << 32;
        Ok(Self::offered(init.minor.min(MINOR), InitFlags::from_bits_retain(bits), init.max_readahead))
    }

    /// The minor version that both know.
    #[must_use]
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// Whether the kernel offers all of `flags`.
    #[must_use]
    pub const fn offers(&self, flags: InitFlags) -> bool {
        self.offered.contains(flags)
    }

    /// Requests `flags` as far as they are offered. Each one is a promise: read its description.
    pub fn want(&mut self, flags: InitFlags) {
        self.wanted |= flags;
    }

    /// Withdraws the request for `flags`.
    pub fn decline(&mut self, flags: InitFlags) {
        self.wanted -= flags;
    }

    /// The capabilities in force if the answer were sent now.
    #[must_use]
    pub fn agreed(&self) -> InitFlags {
        let mut wanted = self.wanted;
        if wanted.contains(InitFlags::POSIX_ACL) {
            // A default ACL replaces the umask, so the mode must arrive unmasked.
            wanted |= InitFlags::DONT_MASK;
        }
        wanted &= InitFlags::from_bits_truncate((1 << 43) - 1);
        (wanted & self.offered) - NEVER
    }

    /// The answer, and the sizes of buffers that follow from it.
    pub(crate) fn settle(&self, page: u32) -> (wire::InitOut, Agreement) {
        let flags = self.agreed();
        let max_write = self.max_write.clamp(MAX_WRITE_MIN, MAX_WRITE) / page * page;
        let max_pages = u16::try_from(max_write / page).unwrap_or(u16::MAX);
        let out = wire::InitOut {
            major: MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: (flags.bits() & 0xffff_ffff) as u32,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write,
            time_gran: 1,
            max_pages,
            flags2: (flags.bits() >> 32) as u32,
            ..wire::InitOut::default()
        };
        (out, Agreement { minor: self.minor, flags, max_write })
    }
}

/// The agreement with the kernel.
///
/// ```no_run
/// # fn example(session: creamery_fuse::Session) {
/// use creamery_fuse::protocol::InitFlags;
/// assert!(session.agreement().flags.contains(InitFlags::BIG_WRITES));
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// Minor version of the protocol spoken.
    pub minor: u32,
    /// Capabilities in force.
    pub flags: InitFlags,
    /// Largest write and read, bytes.
    pub max_write: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32, flags: u32) -> wire::InitIn {
        wire::InitIn { major: 7, minor, max_readahead: 131_072, flags }
    }

    #[test]
    fn only_what_is_offered_is_agreed() {
        let negotiation = Negotiation::from_wire(&init(45, 1 << 0 | 1 << 22), 0).unwrap();
        assert_eq!(negotiation.agreed(), InitFlags::ASYNC_READ | InitFlags::MAX_PAGES);
    }

    #[test]
    fn bits_of_a_newer_kernel_and_impossible_ones_are_never_answered() {
        let mut negotiation = Negotiation::from_wire(&init(99, u32::MAX), u32::MAX).unwrap();
        negotiation.want(InitFlags::from_bits_retain(u64::MAX));
        let agreed = negotiation.agreed();
        assert_eq!(agreed.bits() >> 43, 0);
        assert!(!agreed.intersects(NEVER));
        assert_eq!(negotiation.minor(), 45);
    }

    #[test]
    fn old_kernels_are_refused_by_name() {
        let error = Negotiation::from_wire(&init(30, 0), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("7.30"), "{error}");
    }

    #[test]
    fn sizes_follow_the_page() {
        let mut negotiation = Negotiation::offered(45, InitFlags::all(), 0);
        assert_eq!(negotiation.settle(4096).0.max_pages, 256);
        assert_eq!(negotiation.settle(65_536).0.max_pages, 16);
        negotiation.max_write = 1;
        assert_eq!(negotiation.settle(4096).1.max_write, 131_072);
    }
}
