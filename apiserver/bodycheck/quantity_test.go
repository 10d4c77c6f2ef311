package bodycheck_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/policy"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const (
	pods       = "/api/v1/namespaces/n/pods"
	configMaps = "/api/v1/namespaces/n/configmaps"
	scalers    = "/apis/autoscaling/v1/namespaces/n/horizontalpodautoscalers"

	inJSON     = runtime.ContentTypeJSON
	inYAML     = runtime.ContentTypeYAML
	inProtobuf = runtime.ContentTypeProtobuf
	jsonPatch  = string(types.JSONPatchType)
	mergePatch = string(types.MergePatchType)
	strategic  = string(types.StrategicMergePatchType)
	apply      = string(types.ApplyYAMLPatchType)
	tooLarge   = "the exponent may have at most four digits"
)

// podWith returns a pod with limits, which are inserted as they are.
func podWith(limits string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"commit":"4e12345"}},"spec":{"containers":[{"name":"a","image":"a:4e12345","resources":{"limits":{` + limits + `}}}]}}`
}

// cpu returns a pod with a CPU limit, which is inserted as it is.
func cpu(value string) string { return podWith(`"cpu":` + value) }

// field returns a field of a message in protobuf, which holds the parts.
func field(number byte, parts ...string) string {
	content := strings.Join(parts, "")
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))) + content
}

// protobufPod returns a pod with a CPU limit, which is a message of a quantity.
func protobufPod(quantity string) string {
	limits := field(1, field(1, "cpu"), field(2, quantity))
	spec := field(2, field(2, field(1, "a"), field(2, "a:4e12345"), field(8, limits)))
	return "k8s\x00" + field(1, field(1, "v1"), field(2, "Pod")) + field(2, field(1, field(1, "p")), spec)
}

func inUTF16(text string) string {
	data := []byte{0xfe, 0xff}
	for _, unit := range utf16.Encode([]rune(text)) {
		data = binary.BigEndian.AppendUint16(data, unit)
	}
	return string(data)
}

// scalerWith returns an autoscaler with metrics in its annotation.
func scalerWith(name, metrics string) string {
	text, err := json.Marshal(metrics)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":%q,"annotations":{"autoscaling.alpha.kubernetes.io/metrics":%s}},`+
		`"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`, name, text)
}

func TestQuantitiesWithHugeExponentsAreRefused(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(slices.DeleteFunc(core.Kinds(), func(d resource.Declaration) bool {
		return !slices.Contains([]string{"pods", "configmaps", "nodes"}, d.Kind().Name)
	}), policy.Kinds(), autoscaling.Kinds())...)
	const metrics = `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"%s"}}]`
	const stored = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"stored","annotations":{"a":"1e-99999"}},"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"1"}}}]}}`
	const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"cpu":"1e-99999"}}`
	for path, body := range map[string]string{pods: stored, configMaps: configMap, scalers: scalerWith("h", fmt.Sprintf(metrics, "1"))} {
		s.Do(http.MethodPost, path, json.RawMessage(body)).Want(http.StatusCreated)
	}
	const container = "/spec/containers/0/resources/limits"
	for _, test := range []struct {
		rule, method, path, contentType, body string
		// refused is the message; empty passes.
		refused string
	}{
		{"an ordinary quantity passes", "POST", pods, inJSON, cpu(`"500m"`), ""},
		{"leading zeros do not make it larger", "POST", pods, inJSON, cpu(`"1e000003"`), ""},
		{"a hash elsewhere passes", "POST", configMaps, inJSON, strings.Replace(configMap, `"c"`, `"4e12345"`, 1), ""},
		{"a huge exponent is refused", "POST", pods, inJSON, cpu(`"1e99999"`), "spec.containers[0].resources.limits.cpu: quantity \"1e99999\": " + tooLarge},
		{"a huge negative exponent is refused", "PUT", pods + "/stored", inJSON, cpu(`"1e-10000"`), tooLarge},
		{"a number with a huge exponent is refused", "POST", pods, inJSON, cpu(`0.1E99999`), "spec.containers[0].resources.limits.cpu: quantity \"0.1E99999\": " + tooLarge},
		{"an exponent without a number is refused", "POST", pods, inJSON, cpu(`"e99999"`), tooLarge},
		{"an escape sequence does not hide it", "PATCH", pods + "/stored", strategic, strings.Replace(cpu(`"1\u0065-99999"`), `"p"`, `"stored"`, 1), tooLarge},
		{"the first of two fields of a name is refused", "POST", pods, inJSON, podWith(`"cpu":"1e-99999","cpu":"1"`), tooLarge},
		{"the case of a parameter does not hide it", "POST", pods, inJSON + `; a="yaml protobuf"`, cpu(`"1e99999"`), tooLarge},
		{"the name of a resource is refused", "POST", pods, inJSON, podWith(`"cpu":"1","hugepages-1e-99999":"1"`), "is not positive integer multiple of hugepages-1e-99999"},
		{"an object of another kind is refused", "POST", configMaps, inJSON, cpu(`"1e-99999"`), tooLarge},
		{"a list is refused", "POST", pods, inJSON, `{"apiVersion":"v1","kind":"PodList","items":[` + cpu(`"1e-99999"`) + `]}`, tooLarge},

		{"it is refused in YAML", "POST", pods, inYAML, cpu(`"1e-99999"`), tooLarge},
		{"an escape sequence in YAML does not hide it", "POST", pods, inYAML, cpu(`"1\x65-99999"`), tooLarge},
		{"base64 does not hide it", "POST", pods, inYAML, cpu("!!binary " + base64.StdEncoding.EncodeToString([]byte("1e-99999"))), tooLarge},
		{"UTF-16 does not hide it", "POST", pods, inYAML, inUTF16(cpu(`"1e-99999"`)), tooLarge},

		{"an ordinary quantity in protobuf passes", "POST", pods, inProtobuf, protobufPod(field(1, "500m")), ""},
		{"it is refused in protobuf", "POST", pods, inProtobuf, protobufPod(field(1, "1e-99999")), tooLarge},
		{"a long text is refused in protobuf", "POST", pods, inProtobuf, protobufPod(field(1, "1e-"+strings.Repeat("0", 200)+"99999")), tooLarge},
		{"a field beside it does not hide it in protobuf", "POST", pods, inProtobuf, protobufPod(field(2, "") + field(1, "1e-99999")), tooLarge},

		{"it is refused in a JSON patch", "PATCH", pods + "/stored", jsonPatch, `[{"op":"add","path":"` + container + `/cpu","value":"1e-99999"}]`, tooLarge},
		{"an empty name does not hide it", "PATCH", pods + "/stored", jsonPatch, `[{"op":"add","path":"` + container + `/","value":"1e-99999"}]`, tooLarge},
		{"a path without a slash does not hide it", "PATCH", pods + "/stored", jsonPatch, `[{"op":"add","path":"x` + container + `/cpu","value":"1e-99999"}]`, tooLarge},
		{"a copy of another value is refused", "PATCH", pods + "/stored", jsonPatch, `[{"op":"copy","from":"/metadata/annotations/a","path":"` + container + `/cpu"}]`, tooLarge},
		{"a move of another value is refused", "PATCH", pods + "/stored", jsonPatch, `[{"op":"move","from":"/metadata/annotations/a","path":"` + container + `/cpu"}]`, tooLarge},
		{"a copy of a quantity passes", "PATCH", pods + "/stored?dryRun=All", jsonPatch, `[{"op":"copy","from":"` + container + `/cpu","path":"/metadata/annotations/cpu"}]`, ""},
		{"a change of the kind is refused", "PATCH", configMaps + "/c", jsonPatch, `[{"op":"replace","path":"/kind","value":"Node"},{"op":"move","from":"/data","path":"/status"},` +
			`{"op":"add","path":"/status/capacity","value":{}},{"op":"move","from":"/status/cpu","path":"/status/capacity/cpu"}]`, tooLarge},
		{"a hash in a JSON patch passes", "PATCH", pods + "/stored", jsonPatch, `[{"op":"add","path":"/metadata/annotations/commit","value":"1e99999"}]`, ""},
		{"it is refused in a merge patch", "PATCH", pods + "/stored", mergePatch, cpu(`"1e-99999"`), tooLarge},
		{"it is refused in an apply patch", "PATCH", pods + "/p?fieldManager=m", apply, cpu(`"1e-99999"`), "spec.containers[0].resources.limits.cpu: quantity \"1e-99999\": " + tooLarge},
		{"base64 does not hide it in an apply patch", "PATCH", pods + "/p?fieldManager=m", apply, cpu("!!binary " + base64.StdEncoding.EncodeToString([]byte("1e-99999"))), tooLarge},

		{"ordinary metrics of an autoscaler pass", "POST", scalers, inJSON, scalerWith("i", fmt.Sprintf(metrics, "1")), ""},
		{"it is refused in metrics of an autoscaler", "POST", scalers, inJSON, scalerWith("j", fmt.Sprintf(metrics, "1e-99999")), tooLarge},
		{"and in the behavior of one", "POST", strings.Replace(scalers, "v1", "v2beta1", 1), inJSON, `{"apiVersion":"autoscaling/v2beta1","kind":"HorizontalPodAutoscaler","metadata":{"name":"j","annotations":` +
			`{"autoscaling.alpha.kubernetes.io/behavior":"{\"scaleUp\":{\"tolerance\":\"1e-99999\"}}"}},"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`, tooLarge},
		{"and in a strategic merge patch of them", "PATCH", scalers + "/h", strategic, scalerWith("h", fmt.Sprintf(metrics, "1e-99999")), tooLarge},
	} {
		t.Run(test.rule, func(t *testing.T) {
			resp := s.Send(test.method, test.path, []byte(test.body), "Content-Type", test.contentType)
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(answer), `\"`, `"`)
			passed := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusCreated
			if passed != (test.refused == "") || resp.StatusCode >= http.StatusInternalServerError || !strings.Contains(text, test.refused) {
				t.Errorf("answered %d: %s", resp.StatusCode, text)
			}
			if passed && test.method == "POST" && test.path == pods {
				s.Do(http.MethodDelete, pods+"/p?gracePeriodSeconds=0", nil).Want(http.StatusOK)
			}
		})
	}
}
