// Package config has no code: it is the manifests, and their tests.
package config_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/options"
)

// overlay is what a user applies: a directory, with components.
type overlay struct {
	base       string
	components []string
}

func (o overlay) String() string { return strings.Join(append([]string{o.base}, o.components...), "+") }

// overlays are all that the documentation names.
var overlays = []overlay{
	{"aggregated", nil},
	{"default", nil},
	{"standalone", nil},
	{"aggregated", []string{"monitoring"}},
	{"standalone", []string{"monitoring"}},
	{"aggregated", []string{"emptydir"}},
	{"aggregated", []string{"three-etcd"}},
	{"aggregated", []string{"three-etcd", "emptydir"}},
	{"aggregated", []string{"external-etcd"}},
	{"aggregated", []string{"cert-manager"}},
	{"aggregated", []string{"cert-manager", "three-etcd"}},
	{"aggregated", []string{"machines"}},
	{"aggregated", []string{"machines", "cert-manager"}},
	{"aggregated", []string{"host-lease"}},
	{"aggregated", []string{"namespace-scoped"}},
	{"aggregated", []string{"namespace-scoped", "cert-manager", "three-etcd"}},
	{"testdata/namespace", nil},
}

// manifests are the objects of an overlay.
type manifests struct {
	objects []client.Object
	// secretNames are the Secrets that the comments of the kustomizations tell the user
	// to make, and those of certificates of cert-manager.
	secretNames []string
}

// othersKinds are those of cert-manager, whose types are not here.
var othersKinds = []string{"cert-manager.io/v1"}

var madeByUser = regexp.MustCompile(`create secret generic (\S+)`)

// render returns the objects of an overlay with a user's changes, strictly decoded.
func render(t *testing.T, o overlay, changes ...func(*kustomize.Kustomization)) *manifests {
	t.Helper()
	m := &manifests{}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(directory, here)
	if err != nil {
		t.Fatal(err)
	}
	k := kustomize.Kustomization{Resources: []string{filepath.Join(relative, o.base)}}
	read := []string{filepath.Join(o.base, "kustomization.yaml")}
	for _, c := range o.components {
		k.Components = append(k.Components, filepath.Join(relative, "components", c))
		read = append(read, filepath.Join("components", c, "kustomization.yaml"))
	}
	for _, change := range changes {
		change(&k)
	}
	content, err := yaml.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range read {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range madeByUser.FindAllStringSubmatch(string(content), -1) {
			m.secretNames = append(m.secretNames, found[1])
		}
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.Resources() {
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(othersKinds, r.GetApiVersion()) {
			if name, err := r.GetString("spec.secretName"); err == nil {
				m.secretNames = append(m.secretNames, name)
			}
			continue
		}
		m.objects = append(m.objects, decode(t, content))
	}
	return m
}

// decode decodes an object; a field that its type does not have is an error.
func decode(t *testing.T, content []byte) client.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiregistrationv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := strict.Decode(content, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	return object.(client.Object)
}

func TestOverlays(t *testing.T) {
	all := render(t, overlay{"aggregated", nil})
	for _, o := range overlays {
		t.Run(o.String(), func(t *testing.T) {
			m := render(t, o)
			for rule, holds := range map[string]func(*testing.T, *manifests){
				"PodsAreRestricted":                     podsAreRestricted,
				"ImagesHaveATag":                        imagesHaveATag,
				"ConfigMapsHaveANamespace":              configMapsHaveANamespace,
				"VolumesAndAccountsOfPodsExist":         volumesAndAccountsOfPodsExist,
				"SelectorsAndPortsMeetOneWorkload":      selectorsAndPortsMeetOneWorkload,
				"BindingsHaveARoleAndAnAccount":         bindingsHaveARoleAndAnAccount,
				"APIServicesNameTheServiceOfTheServers": aPIServicesNameTheServiceOfTheServers,
				"ProgramsAcceptTheirFlags":              programsAcceptTheirFlags,
				"AFailureLeavesAnAPIServer":             aFailureLeavesAnAPIServer,
				"AServerEndsAfterItsRequests":           aServerEndsAfterItsRequests,
				"TheAlertOfAFullDatabaseFiresInTime":    theAlertOfAFullDatabaseFiresBelowTheQuota,
			} {
				t.Run(rule, func(t *testing.T) { holds(t, m) })
			}
			if o.base == "aggregated" {
				t.Run("LeavesOutNoRoleAndNoBinding", func(t *testing.T) { leavesOutNoRoleAndNoBinding(t, all, m) })
			}
		})
	}
}

func objects[T client.Object](m *manifests) []T {
	var all []T
	for _, o := range m.objects {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// workload is an object with pods.
type workload struct {
	client.Object
	template corev1.PodTemplateSpec
	selector map[string]string
}

func workloads(m *manifests) []workload {
	var all []workload
	for _, d := range objects[*appsv1.Deployment](m) {
		all = append(all, workload{d, d.Spec.Template, d.Spec.Selector.MatchLabels})
	}
	for _, s := range objects[*appsv1.StatefulSet](m) {
		w := workload{s, s.Spec.Template, s.Spec.Selector.MatchLabels}
		for _, claim := range s.Spec.VolumeClaimTemplates {
			w.template.Spec.Volumes = append(w.template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}})
		}
		all = append(all, w)
	}
	return all
}

// components are the directories that no overlay of the list may lack.
func TestEveryOverlayIsTested(t *testing.T) {
	entries, err := os.ReadDir("components")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.ContainsFunc(overlays, func(o overlay) bool { return slices.Contains(o.components, entry.Name()) }) {
			t.Errorf("no overlay has the component %s", entry.Name())
		}
	}
}

// The overlay is that of docs/aggregated.md.
func TestAFleetIsInANamespaceThatTheUserNames(t *testing.T) {
	for _, o := range render(t, overlay{"testdata/namespace", nil}).objects {
		content, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "svc-system") || len(o.GetLabels()) == 0 {
			t.Errorf("%T %s is not of the namespace, or has no label:\n%s", o, o.GetName(), content)
		}
		if ns := o.GetNamespace(); ns != "" && ns != "team-fleet" && ns != "kube-system" {
			t.Errorf("%T %s is in %s", o, o.GetName(), ns)
		}
	}
}

func TestKustomizationsHaveNoDeprecatedFields(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var k kustomize.Kustomization
		if err := k.Unmarshal(content); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if deprecated := k.CheckDeprecatedFields(); deprecated != nil && len(*deprecated) > 0 {
			t.Errorf("%s: %v", path, *deprecated)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if files < 10 {
		t.Errorf("found %d kustomizations", files)
	}
}

func podsAreRestricted(t *testing.T, m *manifests) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	if len(workloads(m)) == 0 {
		t.Error("no workloads")
	}
	for _, w := range workloads(m) {
		if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &w.template.ObjectMeta, &w.template.Spec)); !result.Allowed {
			t.Errorf("%s: %s", w.GetName(), result.ForbiddenDetail())
		}
		for _, c := range w.template.Spec.Containers {
			if !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: the root file system of %s can be written", w.GetName(), c.Name)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %s has no requests and limits: %+v", w.GetName(), c.Name, c.Resources)
			}
		}
	}
}

func imagesHaveATag(t *testing.T, m *manifests) {
	for _, w := range workloads(m) {
		for _, c := range w.template.Spec.Containers {
			_, tag, ok := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
			if !ok || tag == "latest" || tag == "" {
				t.Errorf("%s: image %s", w.GetName(), c.Image)
			}
		}
	}
}

// configMapsHaveANamespace: what kustomize generates is not left to the namespace of the
// user's context.
func configMapsHaveANamespace(t *testing.T, m *manifests) {
	for _, o := range objects[*corev1.ConfigMap](m) {
		if o.Namespace == "" {
			t.Errorf("%s has no namespace", o.Name)
		}
	}
}

// aFailureLeavesAnAPIServer: a node that fails, one that is drained, or a server that hangs
// leaves another server.
func aFailureLeavesAnAPIServer(t *testing.T, m *manifests) {
	found := 0
	for _, d := range objects[*appsv1.Deployment](m) {
		if d.Name != "svc-apiserver" {
			continue
		}
		found++
		if d.Spec.Replicas == nil || *d.Spec.Replicas != 2 {
			t.Errorf("%s: replicas %v, want 2", d.Name, d.Spec.Replicas)
		}
		pods := labels.Set(d.Spec.Template.Labels)
		if !slices.ContainsFunc(spreadOverNodes(d.Spec.Template.Spec), func(s *metav1.LabelSelector) bool { return selects(t, s, pods) }) {
			t.Errorf("%s: nothing spreads its pods over nodes", d.Name)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
					t.Errorf("%s: %s is not probed at %s: %+v", d.Name, c.Name, path, probe)
				}
			}
		}
		budgets := slices.DeleteFunc(objects[*policyv1.PodDisruptionBudget](m), func(b *policyv1.PodDisruptionBudget) bool {
			return b.Namespace != d.Namespace || !selects(t, b.Spec.Selector, pods)
		})
		if len(budgets) != 1 || budgets[0].Spec.MinAvailable == nil || budgets[0].Spec.MinAvailable.IntValue() != 1 {
			t.Errorf("%s: budgets %+v, want one of at least one pod", d.Name, budgets)
		}
	}
	if found != 1 {
		t.Errorf("%d Deployments of API servers", found)
	}
}

// aServerEndsAfterItsRequests: a server that stops is not ready before its port closes, and
// has the time of its longest request.
func aServerEndsAfterItsRequests(t *testing.T, m *manifests) {
	for _, w := range workloads(m) {
		container := w.template.Spec.Containers[0]
		program, args := command(t, m, container)
		if program != "apiserver" {
			continue
		}
		o := options.New()
		parse(t, o.Flags(), args)
		probe := container.ReadinessProbe
		if noticed := time.Duration(probe.PeriodSeconds*cmp.Or(probe.FailureThreshold, 3)) * time.Second; noticed >= o.Requests.ShutdownDelay {
			t.Errorf("%s: it is not ready after %s, and its port closes after %s", w.GetName(), noticed, o.Requests.ShutdownDelay)
		}
		took := o.Requests.ShutdownDelay + o.Requests.Timeout
		if has := time.Duration(ptr.Deref(w.template.Spec.TerminationGracePeriodSeconds, 30)) * time.Second; has < took {
			t.Errorf("%s: it is killed after %s, and may need %s", w.GetName(), has, took)
		}
	}
}

// spreadOverNodes returns the selectors of the pods from which those of a template stay apart.
func spreadOverNodes(pod corev1.PodSpec) (selectors []*metav1.LabelSelector) {
	for _, c := range pod.TopologySpreadConstraints {
		if c.TopologyKey == corev1.LabelHostname {
			selectors = append(selectors, c.LabelSelector)
		}
	}
	if pod.Affinity == nil || pod.Affinity.PodAntiAffinity == nil {
		return selectors
	}
	terms := slices.Clone(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, preferred := range pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, preferred.PodAffinityTerm)
	}
	for _, term := range terms {
		if term.TopologyKey == corev1.LabelHostname {
			selectors = append(selectors, term.LabelSelector)
		}
	}
	return selectors
}

func selects(t *testing.T, s *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(set)
}
