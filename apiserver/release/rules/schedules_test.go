package rules

import (
	"slices"
	"testing"

	"svc.dev/svc/apis/batch"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/releases"
)

func TestSchedulesMayHaveATimeZoneUntil1_28(t *testing.T) {
	const base = `
metadata: {name: a, namespace: default, resourceVersion: "1"}
spec: {schedule: "0 * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
`
	const zoned, both = `spec: {schedule: "TZ=UTC 0 * * * *"}`, `spec: {schedule: "TZ=UTC 0 * * * *", timeZone: UTC}`
	const refused = `spec.schedule: Invalid value: "TZ=UTC 0 * * * *": `
	for _, test := range []struct {
		release  releases.Release
		was      string // an update
		change   string
		want     []string
		warnings []string
	}{
		{release: 21, change: zoned, want: []string{refused + batch.ZoneRefused}},
		{release: 22, change: zoned},
		{release: 23, change: zoned, warnings: []string{zoneWarning}},
		{release: 28, change: zoned, warnings: []string{zoneWarning}},
		{release: 28, was: "{}", change: zoned, warnings: []string{zoneWarning}},
		{release: 28, change: both, want: []string{refused + batch.TwoZones}, warnings: []string{zoneWarning}},
		{release: 28, was: zoned, change: both, want: []string{refused + batch.TwoZones}, warnings: []string{zoneWarning}},
		{release: 28, change: "{}"},
		{release: 29, change: zoned, want: []string{refused + batch.ZoneRefused}},
		{release: 29, was: zoned, change: zoned, warnings: []string{batch.ZoneWarning}},
	} {
		k := *kinds()[slices.IndexFunc(kinds(), func(k *resource.Kind) bool { return k.Hub.Kind == "CronJob" })]
		AcceptZones(&k, test.release)
		obj := resourcetest.Object(t, &k, base, test.change)
		got, warnings := messages(&k, obj, nil), k.Warn(obj, nil)
		if test.was != "" {
			old := resourcetest.Object(t, &k, base, test.was)
			got, warnings = messages(&k, obj, old), k.Warn(obj, old)
		}
		if !slices.Equal(got, test.want) || !slices.Equal(warnings, test.warnings) {
			t.Errorf("%s after %q at %v: errors %q, want %q; warnings %q, want %q", test.change, test.was, test.release, got, test.want, warnings, test.warnings)
		}
	}
}
