//! Results of load trials. In these trials, the offered rate is a fraction of the DUT's worst-case rate (median of its
//! worst-case searches).

use serde::{Deserialize, Serialize};
use units::{Qps, Share};

use crate::plan::{Cores, Point};
use crate::results::no_result::NoResult;
use crate::results::sustained::{self, Sustained};
use crate::sequence::{Recorded, loads_of};

/// Result of the trials at a fraction of the DUT's worst-case rate (median of its worst-case
/// searches).
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// Offered rate, as a fraction of the DUT's worst-case rate (median of its worst-case
    /// searches).
    pub share: Share,
    /// Offered rate, queries per second; absent if no trial was run.
    pub rate: Option<Qps>,
    /// Result of the trials at the offered rate.
    #[serde(flatten)]
    pub found: Sustained,
}

/// Returns the reason why the measurement point has no result, or `None` if it has a result.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    result(recorded, point)?.found.missing
}

/// Returns the result of the trials at a fraction of the DUT's worst-case rate (median of its worst-case searches).
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<LoadResult> {
    let Point::Load(at) = point else { return None };
    let loads = loads_of(recorded.plan, point)?;
    let replay = recorded.replay(point);
    let lengths = (loads.transient.as_secs_f64(), loads.duration.as_secs_f64());
    Some(LoadResult {
        place: at.place.clone(),
        share: at.share,
        rate: replay.as_ref().and_then(|replay| Some(replay.trials.first()?.step.rate)),
        found: sustained::result(recorded, point, replay.as_ref(), lengths),
    })
}
