package releases

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func load(t *testing.T) *Table {
	t.Helper()
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableIsWrittenAsItIsRead(t *testing.T) {
	table := load(t)
	var out strings.Builder
	Write(&out, table.Digest, slices.Clone(table.Kinds), table.types)
	if out.String() != text {
		t.Error("Write(Load()) is not the table")
	}
	if len(table.Digest) != 64 {
		t.Errorf("digest %q", table.Digest)
	}
}

func TestEveryTypeThatFieldsNameIsThere(t *testing.T) {
	table := load(t)
	for i := range table.Kinds {
		if table.Type(&table.Kinds[i]) == nil {
			t.Errorf("%v has no type", table.Kinds[i].GroupVersionKind)
		}
	}
	for name, of := range table.types {
		for i := range of.Fields {
			if f := &of.Fields[i]; f.Type != "" && table.TypeOf(of, f) == nil {
				t.Errorf("%s.%s: no type %s", name, f.Name, f.Type)
			}
		}
	}
}

// The table of removed versions: document 2, section 9. A row with several versions
// has a line for each.
func TestRemovedVersions(t *testing.T) {
	table := load(t)
	for _, row := range []struct {
		removed Release
		version string
		kinds   string
		to      string
		since   Release
	}{
		{29, "flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io/v1beta3", 26},
		{27, "storage.k8s.io/v1beta1", "CSIStorageCapacity", "storage.k8s.io/v1", 24},
		{26, "flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io/v1beta3", 26},
		{26, "autoscaling/v2beta2", "HorizontalPodAutoscaler", "autoscaling/v2", 23},
		{25, "batch/v1beta1", "CronJob", "batch/v1", 21},
		{25, "discovery.k8s.io/v1beta1", "EndpointSlice", "discovery.k8s.io/v1", 21},
		{25, "events.k8s.io/v1beta1", "Event", "events.k8s.io/v1", 19},
		{25, "autoscaling/v2beta1", "HorizontalPodAutoscaler", "autoscaling/v2", 23},
		{25, "policy/v1beta1", "PodDisruptionBudget", "policy/v1", 21},
		{25, "policy/v1beta1", "PodSecurityPolicy", "", 0},
		{25, "node.k8s.io/v1beta1", "RuntimeClass", "node.k8s.io/v1", 20},
		{22, "admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", 16},
		{22, "apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "apiextensions.k8s.io/v1", 16},
		{22, "apiregistration.k8s.io/v1beta1", "APIService", "apiregistration.k8s.io/v1", 10},
		{22, "authentication.k8s.io/v1beta1", "TokenReview", "authentication.k8s.io/v1", 6},
		{22, "authorization.k8s.io/v1beta1", "LocalSubjectAccessReview SelfSubjectAccessReview SubjectAccessReview SelfSubjectRulesReview", "authorization.k8s.io/v1", 16},
		{22, "certificates.k8s.io/v1beta1", "CertificateSigningRequest", "certificates.k8s.io/v1", 19},
		{22, "coordination.k8s.io/v1beta1", "Lease", "coordination.k8s.io/v1", 14},
		{22, "extensions/v1beta1", "Ingress", "networking.k8s.io/v1", 19},
		{22, "networking.k8s.io/v1beta1", "Ingress IngressClass", "networking.k8s.io/v1", 19},
		{22, "rbac.authorization.k8s.io/v1beta1", "ClusterRole ClusterRoleBinding Role RoleBinding", "rbac.authorization.k8s.io/v1", 8},
		{22, "scheduling.k8s.io/v1beta1", "PriorityClass", "scheduling.k8s.io/v1", 14},
		{22, "storage.k8s.io/v1beta1", "CSIDriver CSINode StorageClass VolumeAttachment", "storage.k8s.io/v1", 19},
		{16, "extensions/v1beta1", "NetworkPolicy", "networking.k8s.io/v1", 8},
		{16, "extensions/v1beta1", "DaemonSet Deployment ReplicaSet", "apps/v1", 9},
		{16, "apps/v1beta1", "Deployment StatefulSet", "apps/v1", 9},
		{16, "apps/v1beta2", "DaemonSet Deployment ReplicaSet StatefulSet", "apps/v1", 9},
		{16, "extensions/v1beta1", "PodSecurityPolicy", "policy/v1beta1", 10},
	} {
		gv, err := schema.ParseGroupVersion(row.version)
		if err != nil {
			t.Fatal(err)
		}
		for kind := range strings.FieldsSeq(row.kinds) {
			k := table.Kind(gv.WithKind(kind))
			if k == nil {
				t.Errorf("%s %s is not in the table", row.version, kind)
				continue
			}
			if k.Removed != row.removed || k.Served.Last != row.removed-1 || k.Deprecated == 0 {
				t.Errorf("%s %s: served %v, deprecated %v, removed %v: want removed %v", row.version, kind, k.Served, k.Deprecated, k.Removed, row.removed)
			}
			to := ""
			since := row.since
			at := max(row.removed, row.since)
			if row.to == "flowcontrol.apiserver.k8s.io/v1beta3" {
				at = 28 // the last release before v1
			}
			if next := table.Successor(k, at); next != nil {
				to = next.GroupVersion().String()
				since = next.Served.First
			}
			if to != row.to || since > row.since {
				t.Errorf("%s %s: successor at %v is %q since %v, want %q since %v", row.version, kind, row.removed, to, since, row.to, row.since)
			}
		}
	}
}

func TestFields(t *testing.T) {
	table := load(t)
	for _, tc := range []struct {
		gvk, path string
		first     Release
		last      Release
	}{
		{"/v1/Pod", "spec.containers.image", 16, Newest},
		{"/v1/Pod", "spec.os.name", 23, Newest},
		{"/v1/Pod", "spec.schedulingGates.name", 26, Newest},
		{"/v1/Pod", "spec.containers.resizePolicy", 27, Newest},
		{"/v1/Pod", "spec.volumes.csi.driver", 16, Newest},
		{"/v1/Pod", "metadata.clusterName", 16, 24},
		{"/v1/Service", "spec.topologyKeys", 17, 21},
		{"/v1/PersistentVolumeClaim", "spec.resources.claims", 26, 28},
		{"batch/v1/CronJob", "spec.timeZone", 24, Newest},
		{"batch/v1/CronJob", "spec.jobTemplate.spec.template.spec.containers.name", 21, Newest},
		{"apiextensions.k8s.io/v1/CustomResourceDefinition", "spec.versions.schema.openAPIV3Schema.properties.items.additionalProperties.x-kubernetes-validations", 23, Newest},
	} {
		gvk, err := ParseKind(tc.gvk)
		if err != nil {
			t.Fatal(err)
		}
		k := table.Kind(gvk)
		for r := Oldest; r <= Newest; r++ {
			if got, want := has(table, k, tc.path, r), r >= tc.first && r <= tc.last; got != want {
				t.Errorf("%s %s at %v: %v, want %v", tc.gvk, tc.path, r, got, want)
			}
		}
	}
}

func has(table *Table, k *Kind, path string, r Release) bool {
	of := table.Type(k)
	for name := range strings.SplitSeq(path, ".") {
		if of == nil {
			return false
		}
		f, ok := of.Field(name, r)
		if !ok {
			return false
		}
		of = table.TypeOf(of, f)
	}
	return true
}

func TestEnumerations(t *testing.T) {
	table := load(t)
	pod := table.Type(table.Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}))
	spec, _ := pod.Field("spec", 28)
	policy, _ := table.TypeOf(pod, spec).Field("restartPolicy", 28)
	if !policy.Enum {
		t.Fatalf("restartPolicy is no enumeration: %+v", policy)
	}
	values := table.TypeOf(table.TypeOf(pod, spec), policy)
	if _, known := values.Field("OnFailure", 28); !known {
		t.Errorf("no OnFailure in %+v", values)
	}
}

func TestParseRelease(t *testing.T) {
	for in, want := range map[string]Release{"1.16": 16, "v1.28": 28, "1.37.2": 37, "latest": Newest} {
		if got, err := ParseRelease(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "1", "1.15", "1.38", "2.20", "1.x", "1.28.1.1", "28"} {
		if got, err := ParseRelease(in); err == nil || !strings.Contains(err.Error(), "1.16 to 1.37") {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestParseNamesTheLineOfAnError(t *testing.T) {
	for _, bad := range []string{"kind a/b core/v1 16-\n", "kind /v1/Pod core/v1 x-\n", "type Pod\n", "what\n", "type core/v1.Pod\n spec .PodSpec x\n", "kind /v1/Pod core/v1 16- removed=x\n"} {
		if _, err := parse("# x\n" + bad); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	order := []string{"v1alpha1", "v1alpha2", "v2alpha1", "v1beta1", "v1beta2", "v2beta1", "v1", "v2"}
	for i := range order[1:] {
		if CompareVersions(order[i], order[i+1]) >= 0 {
			t.Errorf("%s is not before %s", order[i], order[i+1])
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestChanges(t *testing.T) {
	table := load(t)
	c := table.Changes(24, 25)
	names := func(kinds []*Kind) string {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Group+"/"+k.Version+"/"+k.Kind)
		}
		return strings.Join(names, " ")
	}
	if got, want := names(c.Removed), "autoscaling/v2beta1/HorizontalPodAutoscaler batch/v1beta1/CronJob discovery.k8s.io/v1beta1/EndpointSlice events.k8s.io/v1beta1/Event node.k8s.io/v1beta1/RuntimeClass policy/v1beta1/Eviction policy/v1beta1/PodDisruptionBudget policy/v1beta1/PodSecurityPolicy"; got != want {
		t.Errorf("removed %s\nwant    %s", got, want)
	}
	if got, want := names(c.Added), "networking.k8s.io/v1alpha1/ClusterCIDR"; got != want {
		t.Errorf("added %s, want %s", got, want)
	}
	if got := names(table.Changes(20, 21).Deprecated); !strings.Contains(got, "policy/v1beta1/PodSecurityPolicy") || strings.Contains(got, "extensions/v1beta1/Ingress") {
		t.Errorf("deprecated between 1.20 and 1.21: %s", got)
	}
	c = table.Changes(22, 23)
	if !slices.Contains(c.AddedFields, "core/v1.PodSpec.os") || slices.Contains(c.AddedFields, "core/v1.PodOS.name") {
		t.Errorf("added fields between 1.22 and 1.23: %v", c.AddedFields)
	}
	if c = table.Changes(24, 25); !slices.Contains(c.RemovedFields, "meta/v1.ObjectMeta.clusterName") {
		t.Errorf("removed fields between 1.24 and 1.25: %v", c.RemovedFields)
	}
}

func TestParseRange(t *testing.T) {
	if from, to, err := ParseRange("1.24..1.29"); err != nil || from != 24 || to != 29 {
		t.Errorf("%v..%v, %v", from, to, err)
	}
	for _, in := range []string{"", "1.24", "1.24..", "1.29..1.24", "1.24..1.24", "1.24...1.25", "1.2..1.29"} {
		if _, _, err := ParseRange(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}
