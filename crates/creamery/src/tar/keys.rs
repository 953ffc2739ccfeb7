//! What things are called in archives.

use super::acl;

/// Bytes of a header, and what data is filled up to.
pub(super) const BLOCK: usize = 512;
/// What stands before the name of an extended attribute.
pub(super) const XATTR_KEY: &[u8] = b"SCHILY.xattr.";
/// One that has a key of its own, and another end.
pub(super) const SELINUX: &[u8] = b"security.selinux";
pub(super) const SELINUX_KEY: &[u8] = b"RHT.security.selinux";
/// ACLs in words, and the attributes that they are of.
pub(super) const ACL_KEYS: [(&[u8], &[u8]); 2] =
    [(b"SCHILY.acl.access", acl::ACCESS), (b"SCHILY.acl.default", acl::DEFAULT)];
