package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestThePlotHasALineForEachFigureAndSystem(t *testing.T) {
	l := newLedger()
	for _, v := range []struct {
		system string
		row    row
		value  float64
	}{
		{"svc", row{Name: "1000 pods there", Figure: "get, p50", Unit: "ms", At: 1000}, 1},
		{"svc", row{Name: "2000 pods there", Figure: "get, p50", Unit: "ms", At: 2000}, 2},
		{"kube", row{Name: "1000 pods there", Figure: "get, p50", Unit: "ms", At: 1000}, 4},
		{"kube", row{Name: "2000 pods there", Figure: "get, p50", Unit: "ms", At: 2000}, 4},
		{"svc", row{Name: "1000 pods there", Figure: "list < all", Unit: "ms", At: 1000}, 0},
		{"svc", lower("idle", "memory, RSS", "MB"), 100},
	} {
		l.add(v.system, v.row, v.value)
	}
	var b strings.Builder
	if err := (report{Rounds: 1, Results: l.results()}).writePlot(&b); err != nil {
		t.Fatal(err)
	}
	text := textOf(t, b.String())
	for _, want := range []string{"get, p50 (ms)", "list < all (ms)", "1k", "2k"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plot does not have %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "memory") {
		t.Error("a row without a number of objects is in the plot")
	}
	// The first panel's axes are 230 by 146 pixels from (52, 34), its tops 2,000 and 4.
	for _, line := range []string{"M167.0 143.5L282.0 107.0", "M167.0 34.0L282.0 34.0"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("the plot does not have the line %s:\n%s", line, b.String())
		}
	}
}

// textOf returns the text of well-formed XML.
func textOf(t *testing.T, document string) string {
	t.Helper()
	var text strings.Builder
	for decoder := xml.NewDecoder(strings.NewReader(document)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
		}
	}
}

func TestLinesOfAGridAreAtRoundValues(t *testing.T) {
	for value, want := range map[float64]float64{0: 1, 0.9: 0.2, 1: 0.2, 4: 1, 6: 2, 11: 5, 26: 10, 1300: 500} {
		if got := niceStep(value); got < want*0.999 || got > want*1.001 {
			t.Errorf("niceStep(%v) = %v, want %v", value, got, want)
		}
	}
}
