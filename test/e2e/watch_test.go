package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("kubectl get --watch", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.run("create", "cm", "first", "--from-literal=a=1")
	})

	It("shows the present objects and then each change", func() {
		watch := k.start("get", "cm", "-w", "--output-watch-events")
		Eventually(watch).Should(gbytes.Say(`EVENT +NAME +DATA +AGE\nADDED +first +1`))
		k.run("create", "cm", "second")
		Eventually(watch).Should(gbytes.Say(`ADDED +second +0`))
		k.run("patch", "cm", "second", "-p", `{"data":{"a":"1","b":"2"}}`)
		Eventually(watch).Should(gbytes.Say(`MODIFIED +second +2`))
		k.run("delete", "cm", "second")
		Eventually(watch).Should(gbytes.Say(`DELETED +second +2`))
	})

	It("shows only changes with --watch-only", func() {
		watch := k.start("get", "cm", "--watch-only", "-o", "name")
		// The watch begins at some moment: change something until it shows.
		Eventually(func() *gexec.Session {
			k.run("annotate", "cm", "first", "--overwrite", "seen="+GinkgoT().TempDir())
			return watch
		}).Should(gbytes.Say("configmap/first"))
		k.run("create", "cm", "second")
		Eventually(watch).Should(gbytes.Say("configmap/second"))
	})

	It("reports objects that begin to match a selector as added, and those that cease as deleted", func() {
		watch := k.start("get", "cm", "-l", "colour=blue", "-w", "--output-watch-events")
		k.run("label", "cm", "first", "colour=blue")
		Eventually(watch).Should(gbytes.Say("ADDED +first"))
		k.run("label", "cm", "first", "colour=red", "--overwrite")
		Eventually(watch).Should(gbytes.Say("DELETED +first"))
	})

	It("follows one object", func() {
		watch := k.start("get", "cm", "first", "-w", "-o", "jsonpath={.data.a}{\"\\n\"}")
		Eventually(watch).Should(gbytes.Say("1\n"))
		k.run("create", "cm", "other", "--from-literal=a=other")
		k.run("patch", "cm", "first", "-p", `{"data":{"a":"2"}}`)
		Eventually(watch).Should(gbytes.Say("^2\n"))
	})
})
