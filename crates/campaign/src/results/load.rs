//! Results at shares of the worst case.

use method::units::{Qps, Share};
use serde::{Deserialize, Serialize};

use crate::course::Recorded;
use crate::course::load::loads_of;
use crate::plan::point::{Cores, Point};
use crate::results::missing::Missing;
use crate::results::sustained::{self, Sustained};

/// Result at a share of the worst-case median.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// The share of the worst-case median that was sent, a fraction.
    pub share: Share,
    /// The rate; absent if there was no median.
    pub rate: Option<Qps>,
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

/// Returns the result of a load.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<LoadResult> {
    let Point::Load(at) = point else { return None };
    let loads = loads_of(recorded.plan, point)?;
    let walk = recorded.walk(point);
    let lengths = (loads.transient.as_secs_f64(), loads.duration.as_secs_f64());
    Some(LoadResult {
        place: at.place.clone(),
        share: at.share,
        rate: walk.as_ref().and_then(|walk| Some(walk.trials.first()?.step.rate)),
        found: sustained::result(recorded, point, walk.as_ref(), lengths),
    })
}
