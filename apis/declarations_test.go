package apis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// TestFinalizersNeedADomainButWhereKubernetesLetsThemGoWithout: objects that
// Kubernetes accepts are accepted.
func TestFinalizersNeedADomainButWhereKubernetesLetsThemGoWithout(t *testing.T) {
	var without []string
	for _, k := range Kinds() {
		if k.Stored() && k.AnyFinalizer {
			without = append(without, k.Resource().String())
		}
	}
	slices.Sort(without)
	want := []string{
		"events", "leasecandidates.coordination.k8s.io", "leases.coordination.k8s.io", "mutatingadmissionpolicies.admissionregistration.k8s.io",
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"poddisruptionbudgets.policy", "runtimeclasses.node.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	}
	if !slices.Equal(without, want) {
		t.Errorf("any finalizer may go to %q, want %q", without, want)
	}
}

// TestWhoseStatusIsWrittenAlone: for these kinds, Kubernetes keeps metadata in updates of the
// status (metav1.ResetObjectMetaForStatus in kubernetes/pkg/registry, and the strategies of flow control).
func TestWhoseStatusIsWrittenAlone(t *testing.T) {
	var only []string
	for _, k := range Kinds() {
		if k.StatusOnly {
			only = append(only, k.Resource().String())
		}
	}
	slices.Sort(only)
	want := []string{
		"compositepodgroups.scheduling.k8s.io", "csinodes.storage.k8s.io", "devicetaintrules.resource.k8s.io", "evictionrequests.lifecycle.k8s.io", "evictions.lifecycle.k8s.io",
		"flowschemas.flowcontrol.apiserver.k8s.io", "podcertificaterequests.certificates.k8s.io", "podgroups.scheduling.k8s.io",
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "resourceclaims.resource.k8s.io", "resourcepoolstatusrequests.resource.k8s.io",
		"servicecidrs.networking.k8s.io", "storageversionmigrations.storagemigration.k8s.io", "storageversions.internal.apiserver.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io", "volumeattachments.storage.k8s.io",
	}
	if !slices.Equal(only, want) {
		t.Errorf("the status is written alone of %q, want %q", only, want)
	}
}

// soundness are the rules that every declaration keeps, beyond its types.
var soundness = []struct {
	rule  string
	check func(k *resource.Kind) (problem string)
}{
	{"the name is lower case and a plural", func(k *resource.Kind) string {
		if k.Name != strings.ToLower(k.Name) || !strings.HasSuffix(k.Name, "s") {
			return k.Name
		}
		return ""
	}},
	{"the watch field is the name or one of the fields", func(k *resource.Kind) string {
		if k.WatchField != "metadata.name" && k.Fields[k.WatchField] == nil && k.Stored() {
			return k.WatchField
		}
		return ""
	}},
	{"terminating and being held go together", func(k *resource.Kind) string {
		if (k.Terminate == nil) != (k.Held == nil) {
			return "one is set, the other is not"
		}
		return ""
	}},
	{"a kind that reserves also releases", func(k *resource.Kind) string {
		if k.Reservations != nil && (k.BeginCreate == nil || k.AfterDelete == nil) {
			return "Reservations without BeginCreate or AfterDelete"
		}
		return ""
	}},
	{"a status is a field Status", func(k *resource.Kind) string {
		if (k.StatusOnCreate || k.StatusOnly) && !k.Status {
			return "StatusOnCreate or StatusOnly without Status"
		}
		return ""
	}},
	{"columns have names, types and values, the first of them the name", func(k *resource.Kind) string {
		for i, c := range k.Columns {
			if c.Name == "" || c.Value == nil || !slices.Contains([]string{"", "string", "integer", "number", "boolean", "date"}, c.Type) || c.Priority < 0 || c.Priority > 1 {
				return fmt.Sprintf("column %d: %+v", i, c)
			}
		}
		return ""
	}},
	{"subresources have different names", func(k *resource.Kind) string {
		names := []string{}
		if k.Status {
			names = append(names, "status")
		}
		if k.Scale != nil {
			names = append(names, "scale")
		}
		for _, v := range k.Views {
			names = append(names, v.Name)
		}
		for _, a := range k.Actions {
			names = append(names, a.Name)
		}
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) != len(names) {
			return strings.Join(names, " ")
		}
		return ""
	}},
	{"labels of selectors lead to fields", func(k *resource.Kind) string {
		for _, v := range k.Versions {
			for label, path := range v.FieldLabels {
				if k.Fields[path] == nil && !strings.HasPrefix(path, "metadata.") {
					return label + " of " + v.GVK.String() + " leads to " + path
				}
			}
		}
		return ""
	}},
}

func TestDeclarationsAreSound(t *testing.T) {
	for _, k := range Kinds() {
		for _, s := range soundness {
			if problem := s.check(k); problem != "" {
				t.Errorf("%s: %s: %s", k.Resource(), s.rule, problem)
			}
		}
	}
}

func TestEveryNameThatKubectlAcceptsMeansOneKind(t *testing.T) {
	meaning := map[string]*resource.Kind{}
	for _, k := range Kinds() {
		if k.Computed != nil {
			continue // metrics are named after the objects that they measure
		}
		for _, name := range append([]string{k.Name, k.Singular}, k.ShortNames...) {
			if other := meaning[name]; other != nil && other != k {
				t.Errorf("%q is %s and %s", name, other.Resource(), k.Resource())
			}
			meaning[name] = k
		}
	}
}

func TestTheHubsVersionIsPreferred(t *testing.T) {
	s, err := NewScheme(Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]string{"": "v1", "apps": "v1", "autoscaling": "v2", "events.k8s.io": "v1", "flowcontrol.apiserver.k8s.io": "v1"} {
		versions := s.PrioritizedVersionsForGroup(group)
		if len(versions) == 0 || versions[0] != (schema.GroupVersion{Group: group, Version: want}) {
			t.Errorf("the versions of %q are %v, want %s first", group, versions, want)
		}
	}
}
