//! The part of the configuration with which a process was started.

use sanderling_config::Config;
use std::sync::Arc;

/// A configuration, and the part `P` of it that the process reads.
#[derive(Debug)]
pub(super) struct StartedWith<P> {
    pub(super) config: Arc<Config>,
    part: P,
}

impl<P: PartialEq + for<'c> From<&'c Config>> StartedWith<P> {
    pub(super) fn new(config: &Arc<Config>) -> StartedWith<P> {
        StartedWith { config: Arc::clone(config), part: P::from(config) }
    }

    /// Whether a process that is started with `config` would behave in the same way. If so, `config` replaces the
    /// stored configuration, so that it is not compared again.
    pub(super) fn is_for(&mut self, config: &Arc<Config>) -> bool {
        if Arc::ptr_eq(&self.config, config) {
            return true;
        }
        let is_same = self.part == P::from(config);
        if is_same {
            self.config = Arc::clone(config);
        }
        is_same
    }
}
