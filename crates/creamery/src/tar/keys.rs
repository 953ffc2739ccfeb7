//! Names in archives.

use super::acl;

/// Bytes of a header; data is padded to a multiple of this.
pub(super) const BLOCK: usize = 512;
/// Prefix of the key of an extended attribute.
pub(super) const XATTR_KEY: &[u8] = b"SCHILY.xattr.";
/// An attribute with its own key, whose value in the archive has no terminating zero.
pub(super) const SELINUX: &[u8] = b"security.selinux";
pub(super) const SELINUX_KEY: &[u8] = b"RHT.security.selinux";
/// Keys of ACLs as text, and the attributes that they stand for.
pub(super) const ACL_KEYS: [(&[u8], &[u8]); 2] =
    [(b"SCHILY.acl.access", acl::ACCESS), (b"SCHILY.acl.default", acl::DEFAULT)];
