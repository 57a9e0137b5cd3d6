//! The trait that all sections implement.

use campaign::sequence::Measure;

use crate::chart::Figure;
use crate::csv::row::Row;
use crate::run::Run;
use crate::table::Table;

/// The section of the report about one kind of measurement.
pub(crate) trait Section: Measure {
    /// Returns the heading of the section.
    fn title(&self) -> &'static str;

    /// Returns the tables for one run.
    fn tables(&self, run: &Run) -> Vec<Table>;

    /// Returns the tables that compare several runs, with a column for each run.
    fn comparisons(&self, _runs: &[Run]) -> Vec<Table> {
        Vec::new()
    }

    /// Returns the figures for all runs.
    fn figures(&self, runs: &[Run]) -> Vec<Figure>;

    /// Returns the HTML that follows the figures and tables on the page.
    fn html(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// Returns the Markdown that follows the tables in the file `tables.md`.
    fn markdown(&self, _runs: &[Run]) -> String {
        String::new()
    }

    /// Returns all results of this kind of measurement, for the file `results.csv`.
    fn rows(&self, run: &Run) -> Vec<Row>;
}
