package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	plotColumns = 3
	panelWidth  = 300
	panelHeight = 210
	// The margins of a panel around its axes.
	marginLeft, marginRight, marginTop, marginBottom = 52, 18, 34, 30
	plotHeader                                       = 44
)

// systemColors returns the color of each system's lines.
func systemColors() []systemColor {
	return []systemColor{{"svc", "#1f6feb"}, {"kube", "#d1570b"}}
}

type systemColor struct{ system, color string }

// panel is the diagram of one figure: a line for each system.
type panel struct {
	title string
	lines map[string][]point // by system, in ascending order of x
}

// point is a figure when there are x objects.
type point struct{ x, y float64 }

// panels returns a diagram for each figure that was measured at several numbers of
// objects (row.At), in the order of their first row.
func (r report) panels() []*panel {
	var all []*panel
	for _, res := range r.Results {
		if res.At == 0 {
			continue
		}
		title := fmt.Sprintf("%s (%s)", res.Figure, res.Unit)
		i := slices.IndexFunc(all, func(p *panel) bool { return p.title == title })
		if i < 0 {
			i = len(all)
			all = append(all, &panel{title: title, lines: map[string][]point{}})
		}
		for system, s := range map[string]summary{"svc": res.SVC, "kube": res.Kube} {
			if s.Median != nil {
				all[i].lines[system] = append(all[i].lines[system], point{float64(res.At), *s.Median})
			}
		}
	}
	return all
}

// writePlot writes the panels as a picture (SVG 1.1).
func (r report) writePlot(w io.Writer) error {
	panels := r.panels()
	rows := (len(panels) + plotColumns - 1) / plotColumns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`+"\n",
		plotColumns*panelWidth, plotHeader+rows*panelHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="16">By the number of pods. %s, %s, %s</text>`+"\n", marginLeft, r.Date.Format("2006-01-02"), html.EscapeString(r.Machine.String()), plural(r.Rounds, "round"))
	for i, s := range systemColors() {
		x := marginLeft + i*80
		fmt.Fprintf(&b, `<path d="M%d 30h22" stroke="%s" stroke-width="2"/><text x="%d" y="34">%s</text>`+"\n", x, s.color, x+28, s.system)
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%plotColumns*panelWidth, plotHeader+i/plotColumns*panelHeight)
		p.write(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the axes, which begin at zero, and the lines.
func (p *panel) write(b *strings.Builder) {
	var top point
	var marks []float64 // on the axis of x
	for _, line := range p.lines {
		for _, at := range line {
			top = point{max(top.x, at.x), max(top.y, at.y)}
			marks = append(marks, at.x)
		}
	}
	step := niceStep(top.y)
	top.y = math.Ceil(top.y/step) * step
	const width, height = panelWidth - marginLeft - marginRight, panelHeight - marginTop - marginBottom
	place := func(at point) (x, y float64) {
		return marginLeft + at.x/top.x*width, marginTop + height - at.y/top.y*height
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", marginLeft, marginTop-10, html.EscapeString(p.title))
	for i := range int(math.Round(top.y/step)) + 1 {
		value := float64(i) * step
		_, y := place(point{0, value})
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", marginLeft, y, width, marginLeft-6, y+4, figures(value))
	}
	slices.Sort(marks)
	free := math.Inf(-1)
	for _, mark := range slices.Compact(marks) {
		x, y := place(point{mark, 0})
		if x-free < 30 { // the labels would overlap
			continue
		}
		free = x
		fmt.Fprintf(b, `<path d="M%.1f %.1fv4" stroke="#888"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x, y, x, y+16, thousands(mark))
	}
	for _, s := range systemColors() {
		var path []string
		for _, at := range p.lines[s.system] {
			x, y := place(at)
			path = append(path, fmt.Sprintf("%.1f %.1f", x, y))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", x, y, s.color)
		}
		if len(path) > 1 {
			fmt.Fprintf(b, `<path d="M%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, "L"), s.color)
		}
	}
}

// niceStep returns a distance between lines of a grid, 1, 2 or 5 times a power of ten,
// so that at most six reach the value.
func niceStep(value float64) float64 {
	if value <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value/5)))
	for _, factor := range []float64{1, 2, 5} {
		if value/(factor*power) <= 5 {
			return factor * power
		}
	}
	return 10 * power
}

// thousands formats a number of objects: 500, 10k.
func thousands(n float64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%gk", n/1000)
}
