package csi

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/gomega"
)

func TestADriverThatKnowsTheConditionOfVolumesIsAskedForIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		known []spec.NodeServiceCapability_RPC_Type
		off   bool
		want  *Health
	}{
		{name: "known", known: []spec.NodeServiceCapability_RPC_Type{stats, conditions}, want: &Health{Abnormal: true, Message: "the disk is gone"}},
		{name: "not known", known: []spec.NodeServiceCapability_RPC_Type{stats}},
		{name: "without the gate", known: []spec.NodeServiceCapability_RPC_Type{stats, conditions}, off: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.known...)
			f.o.Health = !c.off
			f.publish(persistent("u1"))
			f.driver.SetCondition("the disk is gone")
			usage, err := f.Usage(t.Context(), "u1", "pv1")
			f.Expect(err).NotTo(gomega.HaveOccurred())
			f.Expect(usage.Health).To(gomega.Equal(c.want))
		})
	}
}
