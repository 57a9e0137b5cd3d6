//! DNS64 synthesis and related decisions (RFC 6147, RFC 6052, RFC 8880). This module uses no sockets
//! and no clock.

pub(crate) mod decide;
pub(crate) mod decision;
pub(crate) mod empty_zones;
pub(crate) mod hints;
pub(crate) mod local;
mod local_answer;
pub(crate) mod policy;
pub(crate) mod prefix;
mod reverse_name;
pub(crate) mod special;
pub(crate) mod zones;
