package cluster

import (
	"testing"

	"svc.dev/svc/apiserver/release"
)

func TestExclusiveCPUsHaveTheQuotaOfTheRelease(t *testing.T) {
	for version, want := range map[string]bool{"1.28": true, "1.32": true, "1.33": false, "1.37": false} {
		r, err := release.Parse(version)
		if err != nil {
			t.Fatal(err)
		}
		gates, err := nodeGates(r)
		if err != nil {
			t.Fatal(err)
		}
		if gates.QuotaOfExclusiveCPUs != want {
			t.Errorf("%s: limited by the quota: %v, want %v", version, gates.QuotaOfExclusiveCPUs, want)
		}
	}
}
