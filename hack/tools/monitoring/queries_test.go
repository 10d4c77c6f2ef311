package monitoring

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const component = "../../../config/components/monitoring"

// variables are those of Grafana, with values that they can have.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*")

func TestAlertRulesAreValid(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	rules, errs := rulefmt.ParseFile(filepath.Join(component, "alerts.yaml"), false, model.LegacyValidation, p, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if rules == nil {
		t.FailNow()
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			checkSelectors(t, p, rule.Alert, rule.Expr)
		}
	}
}

func TestDashboardQueriesAreValid(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(component, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			checkSelectors(t, parser.NewParser(parser.Options{}), panel.Title, variables.Replace(target.Expr))
		}
	}
	if queries == 0 {
		t.Error("the dashboard has no queries")
	}
}

// checkSelectors requires that every metric is followed by its matchers in braces,
// even if there are none: the test of the metrics that are served finds the names by
// them.
func checkSelectors(t *testing.T, p parser.Parser, name, query string) {
	t.Helper()
	expr, err := p.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok && !strings.Contains(query, selector.Name+"{") {
			t.Errorf("%s: write %s{} in %s", name, selector.Name, query)
		}
		return nil
	})
}
