package node

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("configuration", func() {
	It("reaches a deployment's volumes when it changes, and its environment only when the pods are recreated", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.run(ctx, "create", "configmap", "settings", "--from-literal=color=red", "--from-literal=size=big")
		s.run(ctx, "create", "secret", "generic", "keys", "--from-literal=token=abc")
		s.apply(ctx, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: server
        image: localhost/svc/server:1
        ports: [{name: http, containerPort: 8080}]
        startupProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 60}
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1, timeoutSeconds: 60}
        livenessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1, timeoutSeconds: 60}
      - name: shell
        image: localhost/svc/busybox:1
        command: [sleep, "1000"]
        env:
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}
        - {name: ABSENT, valueFrom: {secretKeyRef: {name: keys, key: absent, optional: true}}}
        - {name: BOTH, value: $(COLOR)-$(TOKEN)-$$(COLOR)-$(UNKNOWN)}
        envFrom: [{prefix: CM_, configMapRef: {name: settings}}]
        volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: keys, mountPath: /keys}
        - {name: settings, mountPath: /fixed, subPath: color}
      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: keys, secret: {secretName: keys, defaultMode: 0400}}
`)
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		read := func(line string) func() (string, error) {
			return func() (string, error) {
				out, _, err := s.kubectl().Run(ctx, "", "exec", "deploy/web", "--container=shell", "--", "sh", "-c", line)
				return out, err
			}
		}
		Expect(read(`cat /settings/color /settings/size /keys/token /fixed; stat -L -c %a /keys/token; echo; echo "$COLOR,$TOKEN,$ABSENT,$BOTH,$CM_size"`)()).To(Equal(
			"redbigabcred400\n\nred,abc,,red-abc-$(COLOR)-$(UNKNOWN),big\n"))
		began := podIDs(ctx, s)

		By("and then it changes")
		s.run(ctx, "patch", "configmap", "settings", "--type=merge", `--patch={"data":{"color":"blue","size":null,"shape":"round"}}`)
		s.run(ctx, "patch", "secret", "keys", "--type=merge", `--patch={"stringData":{"token":"def"}}`)
		Eventually(read("cat /settings/*; cat /keys/token; cat /fixed; echo $COLOR,$TOKEN")).Should(Equal("blueround" + "defred" + "red,abc\n"))
		Expect(podIDs(ctx, s)).To(Equal(began))

		s.run(ctx, "rollout", "restart", "deployment/web")
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		Eventually(read("cat /fixed; echo ,$COLOR,$TOKEN")).Should(Equal("blue,blue,def\n"))
	})

	It("delays a pod until it exists, and reports what is missing", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'cat /late/key; echo; exec sleep 1000']
    volumeMounts: [{name: late, mountPath: /late}]
  volumes: [{name: late, configMap: {name: late}}]
---
apiVersion: v1
kind: Pod
metadata: {name: misconfigured}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo $KEY; exec sleep 1000']
    env: [{name: KEY, valueFrom: {configMapKeyRef: {name: late, key: key}}}]
`)
		Eventually(func() (string, error) { return s.try(ctx, "describe", "pod", "waits") }).Should(MatchRegexp(
			`Warning +FailedMount .*MountVolume.SetUp failed for volume "late" : configmap "late" not found`))
		s.await(ctx, "misconfigured", container("main", And(waiting("CreateContainerConfigError"),
			HaveField("State.Waiting.Message", `configmap "late" not found`))))
		s.run(ctx, "create", "configmap", "late", "--from-literal=key=here")
		s.await(ctx, "waits", beReady())
		s.await(ctx, "misconfigured", beReady())
		for _, pod := range []string{"waits", "misconfigured"} {
			Eventually(func() (string, error) { return s.try(ctx, "logs", pod) }).Should(Equal("here\n"))
		}
	})

	It("exposes fields of the pod as environment and files, and updates the files", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.run(ctx, "create", "configmap", "settings", "--from-literal=color=red")
		s.run(ctx, "create", "secret", "generic", "keys", "--from-literal=token=abc")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata:
  name: self
  labels: {tier: front}
  annotations: {note: hello}
spec:
  serviceAccountName: default
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    resources:
      requests: {cpu: 100m, memory: 16Mi}
      limits: {cpu: 500m, memory: 64Mi}
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: ID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: TIER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    volumeMounts: [{name: all, mountPath: /all}]
  volumes:
  - name: all
    projected:
      sources:
      - configMap: {name: settings, items: [{key: color, path: deep/color, mode: 0440}]}
      - secret: {name: keys}
      - downwardAPI:
          items:
          - {path: labels, fieldRef: {fieldPath: metadata.labels}}
          - {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
          - {path: cpu, resourceFieldRef: {containerName: main, resource: requests.cpu, divisor: 1m}}
      - serviceAccountToken: {path: token-of-account, expirationSeconds: 600, audience: another-service}
`)
		p := s.await(ctx, "self", beReady())
		Expect(s.exec(ctx, "self", "echo $NAME,$SPACE,$ID,$TIER,$NODE,$ACCOUNT,$IP,$HOST,$CPU,$MEMORY")).To(Equal(strings.Join([]string{
			p.Name, p.Namespace, string(p.UID), "front", p.Spec.NodeName, "default", p.Status.PodIP, p.Status.HostIP, "500", "16"}, ",") + "\n"))
		Expect(s.exec(ctx, "self", "cd /all; cat deep/color token cpu note; stat -L -c %a deep/color")).To(Equal("redabc100hello440\n"))
		Expect(s.exec(ctx, "self", "cat /all/labels")).To(Equal(`tier="front"`))
		Expect(strings.Split(s.exec(ctx, "self", "cat /all/token-of-account"), ".")).To(HaveLen(3))

		s.run(ctx, "label", "pod", "self", "tier=back", "--overwrite")
		s.run(ctx, "annotate", "pod", "self", "note=bye", "--overwrite")
		Eventually(func() (string, error) { return s.try(ctx, "exec", "self", "--", "cat", "/all/labels", "/all/note") }).Should(Equal(`tier="back"bye`))
	})

	It("lists the services that exist when a pod starts", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.run(ctx, "create", "service", "clusterip", "shop-front", "--tcp=80:8080")
		service := &corev1.Service{}
		Expect(client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "shop-front"}, service)).To(Succeed())
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: linked}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo $SHOP_FRONT_SERVICE_HOST:$SHOP_FRONT_SERVICE_PORT $KUBERNETES_SERVICE_PORT']}
---
apiVersion: v1
kind: Pod
metadata: {name: unlinked}
spec:
  restartPolicy: Never
  enableServiceLinks: false
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo $SHOP_FRONT_SERVICE_HOST:$SHOP_FRONT_SERVICE_PORT $KUBERNETES_SERVICE_PORT']}
`)
		s.await(ctx, "linked", inPhase(corev1.PodSucceeded))
		s.await(ctx, "unlinked", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "linked")).To(Equal(fmt.Sprintf("%s:80 443\n", service.Spec.ClusterIP)))
		Expect(s.run(ctx, "logs", "unlinked")).To(Equal(": 443\n"))
	})
})

// podIDs returns the UIDs and restart counts of the pods of a space.
func podIDs(ctx SpecContext, s space) map[types.UID]int32 {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(client.List(ctx, &pods, ctrlclient.InNamespace(s.name))).To(Succeed())
	ids := map[types.UID]int32{}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			ids[p.UID] += c.RestartCount
		}
	}
	return ids
}

var _ = Describe("a rolling update", func() {
	It("fails no request of clients that follow the service's endpoints", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
      - name: server
        image: localhost/svc/server:1
        args: [--delay=5s] # in which clients learn that it ends
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1, timeoutSeconds: 60}
`)
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		old := podIDs(ctx, s)
		clients := newCallers(ctx, s, "web")
		s.run(ctx, "set", "env", "deployment/web", "GENERATION=2")
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		var deployment appsv1.Deployment
		Expect(client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "web"}, &deployment)).To(Succeed())
		Expect(deployment.Status.UpdatedReplicas).To(BeEquivalentTo(3))
		Eventually(func() map[types.UID]int32 { return podIDs(ctx, s) }).Should(And(HaveLen(3), WithTransform(
			func(now map[types.UID]int32) []types.UID { return intersection(old, now) }, BeEmpty())))
		answers, failures := clients.stop()
		Expect(failures).To(BeEmpty())
		Expect(answers).To(HaveLen(6), "from each of the old pods and each of the new ones")
	})
})

func intersection(a, b map[types.UID]int32) []types.UID {
	var both []types.UID
	for uid := range a {
		if _, found := b[uid]; found {
			both = append(both, uid)
		}
	}
	return both
}
