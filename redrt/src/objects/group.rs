//! tmp
use crate::error::Result;
use crate::handle::GroupHandle;
use std::sync::Arc;
pub struct Group(Vec<u32>);
impl Group {
    pub fn new(m: Vec<u32>) -> Self {
        Self(m)
    }
    pub fn members(&self) -> &[u32] {
        &self.0
    }
}
pub fn register(_: Group) -> GroupHandle {
    todo!()
}
pub fn resolve(_: GroupHandle) -> Result<Arc<Group>> {
    todo!()
}
