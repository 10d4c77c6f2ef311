package source

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
)

// origin is where a static pod comes from.
type origin struct {
	node string
	// path is the file; for pods of the URL, url is set instead.
	path, url string
}

// podRules are the defaults and the validation of pods.
type podRules struct{ kind *resource.Kind }

func newPodRules() (podRules, error) {
	for _, d := range core.Kinds() {
		if k := d.Kind(); k.Name == "pods" {
			return podRules{k}, nil
		}
	}
	return podRules{}, errors.New("the core group has no pods")
}

// complete sets the name, the UID and the defaults of a static pod, and validates
// it.
func (r podRules) complete(pod *corev1.Pod, from origin) error {
	if pod.Name == "" {
		return errors.New("metadata.name: Required value: a static pod needs a name")
	}
	if pod.UID == "" {
		uid, err := identity(pod, from)
		if err != nil {
			return err
		}
		pod.UID = uid
	} else if !uidText.MatchString(string(pod.UID)) {
		return fmt.Errorf("metadata.uid: Invalid value: %q: directories and cgroups are named after it, so that it has to be of letters, digits and '-': leave it out, and it is made", pod.UID)
	}
	pod.Name += "-" + strings.ToLower(from.node)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = from.node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[HashAnnotation] = string(pod.UID)
	if from.url == "" {
		// Static pods are not evicted by taints.
		tolerateNoExecute(&pod.Spec)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	r.kind.Default(pod)
	core.DefaultPodResources(pod)
	if errs := r.check(pod); len(errs) > 0 {
		return errs.ToAggregate()
	}
	if what := apiReference(&pod.Spec); what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	return nil
}

// uidText matches valid UIDs. It excludes names that lead out of a directory.
var uidText = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)

// identity returns the UID of a static pod: a hash of the manifest and its origin,
// so that it stays the same when the agent restarts.
func identity(pod *corev1.Pod, from origin) (types.UID, error) {
	written, err := json.Marshal(pod)
	if err != nil {
		return "", err
	}
	h := fnv.New128a()
	h.Write(written)
	if from.url == "" {
		fmt.Fprintf(h, "host:%sfile:%s", from.node, from.path)
	} else {
		fmt.Fprintf(h, "url:%s", from.url)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
}

func tolerateNoExecute(spec *corev1.PodSpec) {
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		if t.Key == "" && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute && t.Value == "" {
			t.TolerationSeconds = nil
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
}

// check applies the API server's validation of new pods.
func (r podRules) check(pod *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, r.kind.NameRule, field.NewPath("metadata"))
	errs = append(errs, r.kind.Validate(pod)...)
	return append(errs, r.kind.ValidateCreate(pod)...)
}
