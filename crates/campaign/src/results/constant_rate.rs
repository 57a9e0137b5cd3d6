//! Results at constant rates.

use method::units::Qps;
use serde::{Deserialize, Serialize};

use crate::course::Recorded;
use crate::course::constant_rate::block_of;
use crate::plan::point::{Cores, Point};
use crate::results::missing::Missing;
use crate::results::sustained::{self, Sustained};

/// Result at a rate.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConstantRateResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// The rate that was sent, queries per second.
    pub rate: Qps,
    /// Result at that rate.
    #[serde(flatten)]
    pub found: Sustained,
}

/// True if there is a result for the point, which is complete.
pub(crate) fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    let walk = recorded.walk(point);
    walk.is_some_and(|walk| {
        walk.trials.iter().any(|m| m.verdict() != method::verdict::Verdict::Invalid)
    })
}

/// The reason why the point has no number; `None` if it has one.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
    result(recorded, point)?.found.missing
}

/// Returns the result at a rate.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<ConstantRateResult> {
    let Point::ConstantRate(at) = point else { return None };
    let block = block_of(recorded.plan, point)?;
    let walk = recorded.walk(point);
    let lengths = (block.transient.as_secs_f64(), block.duration.as_secs_f64());
    Some(ConstantRateResult {
        place: at.place.clone(),
        rate: at.rate,
        found: sustained::result(recorded, point, walk.as_ref(), lengths),
    })
}
