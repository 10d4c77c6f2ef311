package report

import (
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"

	"svc.dev/svc/internal/convert"
)

// The parts of SARIF 2.1.0 (OASIS) that the report has.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool         `json:"tool"`
		Results    []sarifResult     `json:"results"`
		Properties map[string]string `json:"properties,omitempty"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string       `json:"id"`
		ShortDescription sarifMessage `json:"shortDescription"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		PhysicalLocation *sarifPhysical `json:"physicalLocation,omitempty"`
		LogicalLocations []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

// SARIF prints the findings in the Static Analysis Results Interchange Format; version
// is svc's.
func (r *Report) SARIF(out io.Writer, version string) error {
	descriptions := convert.Rules()
	ids := slices.Sorted(maps.Keys(descriptions))
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "svc convert", Version: version, Rules: []sarifRule{}}}, Results: []sarifResult{}, Properties: map[string]string{"release": r.Release.String()}}
	for _, id := range ids {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: string(id), ShortDescription: sarifMessage{descriptions[id]}})
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		for _, f := range o.Findings {
			location := sarifLocation{LogicalLocations: []sarifLogical{{FullyQualifiedName: name(o) + f.Path, Kind: "member"}}}
			if f.Line > 0 {
				location.PhysicalLocation = &sarifPhysical{ArtifactLocation: sarifArtifact{uri(o.File)}, Region: sarifRegion{f.Line}}
			}
			run.Results = append(run.Results, sarifResult{
				RuleID: string(f.Rule), RuleIndex: slices.Index(ids, f.Rule), Level: string(f.Level),
				Message: sarifMessage{name(o) + f.Path + ": " + f.Message}, Locations: []sarifLocation{location},
			})
		}
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

// uri returns the reference to a file, relative if its name is.
func uri(file string) string { return (&url.URL{Path: filepath.ToSlash(file)}).String() }
