//! Vega-Lite documents for figures. They describe the columns of the CSV file, so that readers can
//! redraw a figure in an editor or a notebook. Intervals are columns of the CSV and not drawn.

use serde::Serialize;
use std::collections::BTreeMap;

const SCHEMA: &str = "https://vega.github.io/schema/vega-lite/v5.json";

/// The mark for each row, and the columns that determine its properties.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Chart {
    mark: Mark,
    encoding: BTreeMap<&'static str, Channel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolve: Option<Resolve>,
}

#[derive(Debug, Clone, Serialize)]
struct Mark {
    #[serde(rename = "type")]
    kind: &'static str,
    tooltip: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    interpolate: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize)]
struct Channel {
    field: String,
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort: Option<FileOrder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<Scale>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<&'static str>,
}

/// Keeps the order of the file, which Vega-Lite writes as `null`.
#[derive(Debug, Clone, Copy, Serialize)]
struct FileOrder;

#[derive(Debug, Clone, Copy, Serialize)]
struct Scale {
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<&'static str>,
    #[serde(rename = "domainMid", skip_serializing_if = "Option::is_none")]
    middle: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Resolve {
    scale: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    title: &'a str,
    description: &'a str,
    data: Source,
    #[serde(flatten)]
    chart: &'a Chart,
}

#[derive(Debug, Serialize)]
struct Source {
    url: String,
    format: Format,
}

#[derive(Debug, Serialize)]
struct Format {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Chart {
    /// Draws each row as a `mark`: `line`, `point`, `bar`, `rect`, `boxplot`.
    pub(crate) fn new(mark: &'static str) -> Self {
        let mark = Mark {
            kind: mark,
            tooltip: true,
            interpolate: None,
        };
        Self {
            mark,
            encoding: BTreeMap::new(),
            resolve: None,
        }
    }

    /// Draws lines as steps.
    pub(crate) fn steps(mut self) -> Self {
        self.mark.interpolate = Some("step-after");
        self
    }

    fn channel(
        mut self,
        channel: &'static str,
        kind: &'static str,
        (field, title): (&str, &str),
    ) -> Self {
        let made = Channel {
            field: field.to_owned(),
            kind,
            title: title.to_owned(),
            // Names and swept values keep the order in which they were given.
            sort: (kind == "nominal").then_some(FileOrder),
            scale: None,
            stack: None,
        };
        self.encoding.insert(channel, made);
        self
    }

    /// A channel for a number: its column and the title of the axis.
    pub(crate) fn number(self, channel: &'static str, column: (&str, &str)) -> Self {
        self.channel(channel, "quantitative", column)
    }

    /// A channel for a name, or for a value as written in the scenario.
    pub(crate) fn name(self, channel: &'static str, column: (&str, &str)) -> Self {
        self.channel(channel, "nominal", column)
    }

    fn scaled(mut self, channel: &str, scale: Scale) -> Self {
        if let Some(channel) = self.encoding.get_mut(channel) {
            channel.scale = Some(scale);
        }
        self
    }

    /// Sorts upwards; by default, Vega-Lite begins at the top.
    pub(crate) fn upwards(self) -> Self {
        let scale = Scale {
            reverse: Some(true),
            scheme: None,
            middle: None,
        };
        self.scaled("y", scale)
    }

    /// A colour scheme that everybody can distinguish; it is centred on `middle`, if given.
    pub(crate) fn colours(self, middle: Option<f64>) -> Self {
        let scheme = if middle.is_some() {
            "blueorange"
        } else {
            "viridis"
        };
        let scale = Scale {
            // The scheme starts with blue, which stands for the high end here.
            reverse: middle.map(|_| true),
            scheme: Some(scheme),
            middle,
        };
        self.scaled("color", scale)
    }

    /// Numbers along x are parts of a whole.
    pub(crate) fn parts(mut self) -> Self {
        if let Some(channel) = self.encoding.get_mut("x") {
            channel.stack = Some("normalize");
        }
        self
    }

    /// Gives each row of panels a y axis of its own.
    pub(crate) fn own_heights(mut self) -> Self {
        let scale = BTreeMap::from([("y", "independent")]);
        self.resolve = Some(Resolve { scale });
        self
    }

    /// The document for a figure of this name, with its CSV beside it.
    pub(crate) fn document(&self, name: &str, title: &str, description: &str) -> String {
        let document = Document {
            schema: SCHEMA,
            title,
            description,
            data: Source {
                url: format!("{name}.csv"),
                format: Format { kind: "csv" },
            },
            chart: self,
        };
        let text = serde_json::to_string_pretty(&document);
        text.expect("names and numbers can be written as JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_says_where_its_rows_are_and_what_their_columns_mean() {
        let chart = Chart::new("rect")
            .name("x", ("x", "rate"))
            .name("y", ("y", "delay"))
            .upwards()
            .number("color", ("ratio", "ratio"))
            .colours(Some(1.0));
        let text = chart.document("a-map", "A map", "What it shows");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["$schema"], SCHEMA);
        assert_eq!(value["data"]["url"], "a-map.csv");
        assert_eq!(value["mark"]["type"], "rect");
        let encoding = &value["encoding"];
        assert_eq!(encoding["x"]["type"], "nominal");
        assert!(encoding["x"]["sort"].is_null() && encoding["x"].get("sort").is_some());
        assert_eq!(encoding["y"]["scale"]["reverse"], true);
        assert_eq!(encoding["color"]["scale"]["domainMid"], 1.0);
        assert!(encoding["color"].get("sort").is_none());
    }
}
