//! Numbers of requests and notifications.

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum $name { $($(#[$variant_doc])* $variant = $value,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The one with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// The requests a kernel of ABI 7.45 can send.
    ///
    /// ```
    /// use creamery_fuse::protocol::Opcode;
    /// assert_eq!(Opcode::from_number(1), Some(Opcode::Lookup));
    /// assert_eq!(Opcode::from_number(7), None);
    /// ```
    Opcode {
        /// Find a name.
        Lookup = 1,
        /// Give back references; no reply.
        Forget = 2,
        /// Attributes.
        Getattr = 3,
        /// Change attributes.
        Setattr = 4,
        /// Target of a symlink.
        Readlink = 5,
        /// Make a symlink.
        Symlink = 6,
        /// Make a file or device.
        Mknod = 8,
        /// Make a directory.
        Mkdir = 9,
        /// Remove a name.
        Unlink = 10,
        /// Remove a directory.
        Rmdir = 11,
        /// Rename without flags.
        Rename = 12,
        /// Hard link.
        Link = 13,
        /// Open a file.
        Open = 14,
        /// Read data.
        Read = 15,
        /// Write data.
        Write = 16,
        /// Space and files.
        Statfs = 17,
        /// Last close of an open file.
        Release = 18,
        /// Make durable.
        Fsync = 20,
        /// Set an extended attribute.
        Setxattr = 21,
        /// Get an extended attribute.
        Getxattr = 22,
        /// List extended attributes.
        Listxattr = 23,
        /// Remove an extended attribute.
        Removexattr = 24,
        /// One descriptor was closed.
        Flush = 25,
        /// Negotiation.
        Init = 26,
        /// Open a directory.
        Opendir = 27,
        /// Read entries.
        Readdir = 28,
        /// Last close of a directory.
        Releasedir = 29,
        /// Make a directory durable.
        Fsyncdir = 30,
        /// Test a lock.
        Getlk = 31,
        /// Set a lock.
        Setlk = 32,
        /// Set a lock, waiting.
        Setlkw = 33,
        /// Check access.
        Access = 34,
        /// Make and open a file.
        Create = 35,
        /// A pending request's caller was interrupted; no reply.
        Interrupt = 36,
        /// Block map.
        Bmap = 37,
        /// The filesystem goes away.
        Destroy = 38,
        /// A control.
        Ioctl = 39,
        /// Poll.
        Poll = 40,
        /// Data the server asked for; no reply.
        NotifyReply = 41,
        /// Give back many references; no reply.
        BatchForget = 42,
        /// Allocate, punch or zero.
        Fallocate = 43,
        /// Read entries with attributes.
        Readdirplus = 44,
        /// Rename with flags.
        Rename2 = 45,
        /// Find data or a hole.
        Lseek = 46,
        /// Copy on the server.
        CopyFileRange = 47,
        /// Direct access window (virtiofs).
        Setupmapping = 48,
        /// Direct access window (virtiofs).
        Removemapping = 49,
        /// Make everything durable.
        Syncfs = 50,
        /// Make and open a file without a name.
        Tmpfile = 51,
        /// Attributes with time of birth.
        Statx = 52,
        /// Copy on the server, more than 4 GiB.
        CopyFileRange64 = 53,
    }
}

numbers! {
    /// Notifications that the server can send to the kernel.
    ///
    /// ```
    /// use creamery_fuse::protocol::NotifyCode;
    /// assert_eq!(NotifyCode::InvalEntry as u32, 3);
    /// ```
    NotifyCode {
        /// Attributes and pages of an inode are stale.
        InvalInode = 2,
        /// A name is stale.
        InvalEntry = 3,
        /// Put data into the page cache.
        Store = 4,
        /// A name was deleted.
        Delete = 6,
        /// Send pending requests again.
        Resend = 7,
        /// All names are stale.
        IncEpoch = 8,
    }
}

impl Opcode {
    /// Whether the kernel waits for an answer.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u32), Some(opcode));
        }
        assert_eq!(Opcode::from_number(54), None);
        assert_eq!(Opcode::from_number(7), None);
    }
}
