// SPDX-License-Identifier: GPL-2.0-only
/*
 * topolab_busy - CPU time that costs the host nothing, and a count of where wakeups land.
 *
 * 1. /dev/topolab-busy: write() of a u64 N (native endian) occupies the calling task for N nanoseconds of its own CPU
 *    time. The task stays runnable and current, so the scheduler sees a busy CPU: ticks, load tracking, preemption and
 *    migration work as with a spinning task. But between interrupts the CPU halts (HLT), so under TCG with icount the
 *    emulator skips to the next timer instead of executing a spin. A halted CPU inside a task is busy for the guest's
 *    scheduler because idleness is a property of the current task (rq->curr == rq->idle, kernel/sched/core.c,
 *    idle_cpu()), not of the instruction that the CPU executes.
 *
 *    Time is the task's own run time, se.sum_exec_runtime and what has passed since se.exec_start, as
 *    task_sched_runtime() computes it (kernel/sched/core.c; not exported): a task that is preempted burns the rest when
 *    it runs again, wherever that is. Every tick re-reads the clock, so a stale read is corrected within one tick.
 *
 * 2. debugfs topolab/wakeups: "start TGID" zeroes the counters and counts the wakeups of that process's threads for
 *    which the fair class chose a CPU, "stop" ends that; reading gives lines "SYNC WAKER CHOSEN COUNT". Counted at
 *    select_task_rq_fair() (kernel/sched/fair.c), the only place that knows flags, waker and choice at once.
 *
 * 3. debugfs topolab/mechanism: the same for every user task of the fair class whose wakeup chose a CPU (one that may run on a single
 *    CPU, or whose CPU has not let go of it yet, does not), with what the numbers of a benchmark follow from. "llc CPU ID" says
 *    which last-level cache a CPU has, "start" and "stop" bracket a run; reading gives lines
 *      wakeup SYNC WAKER CHOSEN COUNT
 *      stacked SYNC WAKER BUSY ELSEWHERE    wakees put on a CPU that was not idle; of these, while a CPU of another LLC was idle on
 *                                           which the wakee may run
 *      migration KIND FROM TO COUNT         KIND 0: while waking, 1: while queued (balancing, affinity)
 *    A CPU is idle when its last switch was to its idle task: what a scheduler that looked would have seen, but for a wakeup that is
 *    still on its way.
 *
 * 4. debugfs topolab/costs: what a real machine charges and an emulator does not, burned beside the work. "cpu CPU CORE LLC NODE" says
 *    where a CPU is; then, all 0 at first:
 *      smt, core, llc, node NS       a burning task is on another CPU than when it burned last: of the same core, of another core of
 *                                    the same LLC, of another LLC; and, on top of that, of another node
 *      remote PERMILLE               burning on another node than where the task burned first takes that much longer
 *      sibling PERMILLE              and beside a CPU of the same core that is not idle
 *      cold NS, cold_after NS        the first burn on a CPU that was idle for so long
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#if defined(CONFIG_X86)
#include <asm/irqflags.h>
/* Enables interrupts and halts with no window between, so that a wakeup cannot be lost. */
static inline void wait_for_interrupt(void)
{
	raw_safe_halt();
}
#elif defined(CONFIG_ARM64)
#include <asm/barrier.h>
/* WFI ends at a pending interrupt even where it is masked (Arm ARM, D1.6.2), so that none can be lost before it. */
static inline void wait_for_interrupt(void)
{
	dsb(sy);
	wfi();
	local_irq_enable();
}
#elif defined(CONFIG_PPC_PSERIES)
#include <asm/hvcall.h>
#include <asm/hw_irq.h>
#include <asm/paca.h>
/*
 * H_CEDE returns at an interrupt, with interrupts on. As before every idle state, the lazily masked ones must be looked at first,
 * and the soft mask must say what will be (arch/powerpc/kernel/irq_64.c, prep_irq_for_idle(); not exported).
 */
static inline void wait_for_interrupt(void)
{
	hard_irq_disable();
	if (lazy_irq_pending()) {
		local_irq_enable();
		return;
	}
	local_paca->irq_happened &= ~PACA_IRQ_HARD_DIS;
	irq_soft_mask_set(IRQS_ENABLED);
	plpar_hcall_norets(H_CEDE);
}
#else
#error "topolab_busy: how this architecture waits for an interrupt with interrupts disabled is not written down yet"
#endif

/* Longest time that one write may burn: a bound against a typing error, not a limit of the mechanism. */
#define LONGEST_BURN_NS (600ULL * NSEC_PER_SEC)

static enum hrtimer_restart burn_over(struct hrtimer *timer)
{
	/* The interrupt itself ends the halt. */
	return HRTIMER_NORESTART;
}

/* The clock that run queues read: sched_clock_cpu(), which is sched_clock() where that is stable by design, and not exported then. */
static inline u64 run_queue_clock(void)
{
#ifdef CONFIG_HAVE_UNSTABLE_SCHED_CLOCK
	return sched_clock_cpu(smp_processor_id());
#else
	return sched_clock();
#endif
}

/* The CPU time of the calling task in nanoseconds. Interrupts must be off. */
static u64 own_runtime(void)
{
	struct sched_entity *se = &current->se;
	u64 start, sum, now;

	/* Another CPU that balances towards this one may update both under the run queue's lock. */
	do {
		start = READ_ONCE(se->exec_start);
		sum = READ_ONCE(se->sum_exec_runtime);
	} while (start != READ_ONCE(se->exec_start));

	now = run_queue_clock();
	return sum + (now > start ? now - start : 0);
}

static bool should_yield(void)
{
#ifdef CONFIG_PREEMPT_LAZY
	/* A user task is preempted for a lazy request when the tick returns to user mode; so is this one. */
	if (test_thread_flag(TIF_NEED_RESCHED_LAZY))
		return true;
#endif
	return need_resched();
}

/* Where each CPU is, and what its tasks are charged. */
struct place {
	u16 core, llc, node;
	bool cold;		/* idle for long, and nothing has burned since */
	bool idle;
	u64 idle_since;
};

static struct {
	bool on;
	struct place *places;	/* [cpu] */
	u64 smt, core, llc, node, cold, cold_after;	/* ns */
	u64 remote, sibling;	/* permille */
} costs;

/* Kernels that check the types of indirect calls want the tracepoint's own (include/trace/events/sched.h, sched_switch). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
#define PREV_STATE , unsigned int prev_state
#else
#define PREV_STATE
#endif

/* Not exported as variables, but found by name. */
static struct tracepoint *sched_switch, *sched_migrate_task;

/* A thread's handle: where it burned first and last. */
struct burner {
	bool placed;
	unsigned int cpu;
	u16 home;
};

/* How long a burn beside a sibling goes on before one looks again whether the sibling is busy. */
#define SIBLING_SLICE_NS (200ULL * NSEC_PER_USEC)

/* What the place where the caller runs now costs it at once. Preemption must be off. */
static u64 charge(struct burner *burner, unsigned int cpu)
{
	struct place *now = costs.places + cpu, *then = costs.places + burner->cpu;
	u64 ns = 0;

	if (!burner->placed) {
		burner->home = now->node;
	} else {
		if (now->node != then->node)
			ns = costs.node;
		if (now->llc != then->llc)
			ns += costs.llc;
		else if (now->core != then->core)
			ns += costs.core;
		else if (cpu != burner->cpu)
			ns += costs.smt;
	}
	burner->placed = true;
	burner->cpu = cpu;
	if (READ_ONCE(now->cold)) {
		WRITE_ONCE(now->cold, false);
		ns += costs.cold;
	}
	return ns;
}

/* How much longer everything takes there, in permille. */
static u64 slowdown(const struct burner *burner, unsigned int cpu)
{
	const struct place *now = costs.places + cpu;
	u64 permille = now->node == burner->home ? 0 : costs.remote;
	unsigned int other;

	if (costs.sibling)
		for_each_online_cpu(other)
			if (other != cpu && costs.places[other].core == now->core && !READ_ONCE(costs.places[other].idle))
				return permille + costs.sibling;
	return permille;
}

/* As busy_write() without costs, but that what is left to do and what time it takes are two things. */
static void burn_with_costs(struct burner *burner, struct hrtimer *timer, u64 ns)
{
	u64 last, now, permille, wall, done;
	unsigned long flags;
	unsigned int cpu;

	local_irq_save(flags);
	last = own_runtime();
	local_irq_restore(flags);
	while (ns && !fatal_signal_pending(current)) {
		preempt_disable();
		cpu = smp_processor_id();
		ns += charge(burner, cpu);
		permille = 1000 + slowdown(burner, cpu);
		wall = div_u64(ns * permille, 1000) + 1;
		if (costs.sibling && wall > SIBLING_SLICE_NS)
			wall = SIBLING_SLICE_NS;
		hrtimer_start(timer, ns_to_ktime(wall), HRTIMER_MODE_REL_PINNED_HARD);
		local_irq_disable();
		if (should_yield())
			local_irq_enable();
		else
			wait_for_interrupt();
		hrtimer_cancel(timer);
		local_irq_save(flags);
		now = own_runtime();
		local_irq_restore(flags);
		done = div_u64((now - last) * 1000, (u32)permille);
		last = now;
		ns -= done < ns ? done : ns;
		preempt_enable();
		if (should_yield())
			schedule();
	}
}

static void costs_switched(void *data, bool preempt, struct task_struct *prev, struct task_struct *next PREV_STATE)
{
	struct place *place = costs.places + raw_smp_processor_id();
	u64 now = run_queue_clock();

	WRITE_ONCE(place->idle, is_idle_task(next));
	if (is_idle_task(next))
		place->idle_since = now;
	else if (is_idle_task(prev))
		WRITE_ONCE(place->cold, costs.cold && now - place->idle_since >= costs.cold_after);
}

/* A CPU that is idle now may not switch for long. */
static void costs_look(void *unused)
{
	struct place *place = costs.places + smp_processor_id();

	WRITE_ONCE(place->idle, is_idle_task(current));
	place->idle_since = run_queue_clock();
}

static int busy_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct burner), GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int busy_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t busy_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct hrtimer timer;
	unsigned long flags;
	u64 ns, now, target;

	if (count != sizeof(ns))
		return -EINVAL;
	if (copy_from_user(&ns, from, sizeof(ns)))
		return -EFAULT;
	if (ns > LONGEST_BURN_NS)
		return -ERANGE;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup_on_stack(&timer, burn_over, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init_on_stack(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer.function = burn_over;
#endif
	if (costs.on) {
		burn_with_costs(file->private_data, &timer, ns);
		destroy_hrtimer_on_stack(&timer);
		return count;
	}
	local_irq_save(flags);
	now = own_runtime();
	local_irq_restore(flags);
	target = now + ns;

	while (now < target && !fatal_signal_pending(current)) {
		preempt_disable();
		hrtimer_start(&timer, ns_to_ktime(target - now), HRTIMER_MODE_REL_PINNED_HARD);
		local_irq_disable();
		if (should_yield())
			local_irq_enable();
		else
			wait_for_interrupt();
		hrtimer_cancel(&timer);
		preempt_enable();
		if (should_yield())
			schedule();
		local_irq_save(flags);
		now = own_runtime();
		local_irq_restore(flags);
	}
	destroy_hrtimer_on_stack(&timer);
	return count;
}

static const struct file_operations busy_fops = {
	.owner = THIS_MODULE,
	.open = busy_open,
	.release = busy_release,
	.write = busy_write,
	.llseek = noop_llseek,
};

static struct miscdevice busy_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "topolab-busy",
	.fops = &busy_fops,
	.mode = 0222,
};

/* counts[sync][waker][chosen]; a row is written by its own CPU only, with interrupts off (p->pi_lock). */
static u32 *counts;
static pid_t counted_tgid;
/* Each file has its own count of missed wakeups: the one may be read in the middle of the other. */
static int counted_missed;

static u32 *count_of(unsigned int sync, unsigned int waker, unsigned int chosen)
{
	return counts + ((size_t)sync * nr_cpu_ids + waker) * nr_cpu_ids + chosen;
}

/* What the mechanism's file counts; all of it is allocated with the module. */
static struct {
	bool on;
	u32 *wakeups;		/* [sync][waker][chosen]; a row is its own CPU's, with interrupts off */
	u32 *busy;		/* [sync][waker] */
	u32 *elsewhere;		/* [sync][waker] */
	atomic_t *migrations;	/* [kind][from][to] */
	u8 *idle;		/* [cpu] */
	u16 *llc;		/* [cpu] */
	int missed;		/* the probe's before */
} mechanism;

struct wakeup {
	bool counted;
	bool sync;
	struct task_struct *wakee;
};

static int wakeup_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct task_struct *wakee = (struct task_struct *)regs_get_kernel_argument(regs, 0);
	struct wakeup *wakeup = (struct wakeup *)instance->data;
	unsigned long flags = regs_get_kernel_argument(regs, 2);
	pid_t tgid = READ_ONCE(counted_tgid);

	/* WF_TTWU is 8 since 5.15 (kernel/sched/sched.h): forks and execs choose a CPU too, and are no wakeups. */
	wakeup->counted = tgid && wakee->tgid == tgid && (flags & 0x08);
	wakeup->sync = flags & TOPOLAB_WF_SYNC;
	wakeup->wakee = (flags & 0x08) && !(wakee->flags & PF_KTHREAD) ? wakee : NULL;
	return 0;
}

static bool idle_in_another_llc(const struct cpumask *allowed, unsigned int chosen)
{
	unsigned int cpu;

	for_each_cpu_and(cpu, allowed, cpu_online_mask)
		if (READ_ONCE(mechanism.idle[cpu]) && mechanism.llc[cpu] != mechanism.llc[chosen])
			return true;
	return false;
}

static void count_mechanism(const struct wakeup *wakeup, unsigned int waker, unsigned int chosen)
{
	size_t row = wakeup->sync * nr_cpu_ids + waker;

	mechanism.wakeups[row * nr_cpu_ids + chosen]++;
	if (READ_ONCE(mechanism.idle[chosen]))
		return;
	mechanism.busy[row]++;
	if (idle_in_another_llc(wakeup->wakee->cpus_ptr, chosen))
		mechanism.elsewhere[row]++;
}

static int wakeup_chosen(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct wakeup *wakeup = (struct wakeup *)instance->data;
	unsigned long chosen = regs_return_value(regs);

	if (chosen >= nr_cpu_ids)
		return 0;
	if (wakeup->counted)
		(*count_of(wakeup->sync, raw_smp_processor_id(), chosen))++;
	if (wakeup->wakee && READ_ONCE(mechanism.on))
		count_mechanism(wakeup, raw_smp_processor_id(), chosen);
	return 0;
}

static struct kretprobe wakeup_probe = {
	.kp.symbol_name = "select_task_rq_fair",
	.entry_handler = wakeup_begins,
	.handler = wakeup_chosen,
	.data_size = sizeof(struct wakeup),
};

static size_t counts_size(void)
{
	return 2 * (size_t)nr_cpu_ids * nr_cpu_ids * sizeof(*counts);
}

static int wakeups_show(struct seq_file *seq, void *unused)
{
	unsigned int sync, waker, chosen;

	for (sync = 0; sync < 2; sync++)
		for (waker = 0; waker < nr_cpu_ids; waker++)
			for (chosen = 0; chosen < nr_cpu_ids; chosen++)
				if (*count_of(sync, waker, chosen))
					seq_printf(seq, "%u %u %u %u\n", sync, waker, chosen, *count_of(sync, waker, chosen));
	if (wakeup_probe.nmissed != counted_missed)
		seq_printf(seq, "missed %d\n", wakeup_probe.nmissed - counted_missed);
	return 0;
}

static int wakeups_open(struct inode *inode, struct file *file)
{
	return single_open(file, wakeups_show, NULL);
}

static ssize_t wakeups_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	char word[32];
	int tgid;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, from, count))
		return -EFAULT;
	word[count] = 0;
	if (sscanf(word, "start %d", &tgid) == 1 && tgid > 0) {
		WRITE_ONCE(counted_tgid, 0);
		memset(counts, 0, counts_size());
		counted_missed = wakeup_probe.nmissed;
		WRITE_ONCE(counted_tgid, tgid);
	} else if (!strncmp(word, "stop", 4)) {
		WRITE_ONCE(counted_tgid, 0);
	} else {
		return -EINVAL;
	}
	return count;
}

static const struct file_operations wakeups_fops = {
	.owner = THIS_MODULE,
	.open = wakeups_open,
	.read = seq_read,
	.write = wakeups_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static void switched(void *data, bool preempt, struct task_struct *prev, struct task_struct *next PREV_STATE)
{
	WRITE_ONCE(mechanism.idle[raw_smp_processor_id()], is_idle_task(next));
}

/* Tasks of the higher classes are placed by other rules. */
static bool rt_or_dl(const struct task_struct *task)
{
	return task->prio < MAX_RT_PRIO;
}

static void migrates(void *data, struct task_struct *task, int to)
{
	unsigned int kind = READ_ONCE(task->on_rq) ? 1 : 0;
	size_t from = task_cpu(task);

	if (!(task->flags & PF_KTHREAD) && !rt_or_dl(task) && to >= 0 && to < nr_cpu_ids)
		atomic_inc(mechanism.migrations + (kind * nr_cpu_ids + from) * nr_cpu_ids + to);
}

static void find_tracepoint(struct tracepoint *point, void *unused)
{
	if (!strcmp(point->name, "sched_switch"))
		sched_switch = point;
	else if (!strcmp(point->name, "sched_migrate_task"))
		sched_migrate_task = point;
}

static void look_who_is_idle(void *unused)
{
	WRITE_ONCE(mechanism.idle[smp_processor_id()], is_idle_task(current));
}

static size_t square(void)
{
	return 2 * (size_t)nr_cpu_ids * nr_cpu_ids;
}

static void mechanism_stop(void)
{
	if (!mechanism.on)
		return;
	WRITE_ONCE(mechanism.on, false);
	tracepoint_probe_unregister(sched_migrate_task, migrates, NULL);
	tracepoint_probe_unregister(sched_switch, switched, NULL);
	tracepoint_synchronize_unregister();
}

static int mechanism_start(void)
{
	int error;

	if (!sched_switch || !sched_migrate_task)
		return -EOPNOTSUPP;
	mechanism_stop();
	memset(mechanism.wakeups, 0, square() * sizeof(u32));
	memset(mechanism.migrations, 0, square() * sizeof(atomic_t));
	memset(mechanism.busy, 0, 2 * nr_cpu_ids * sizeof(u32));
	memset(mechanism.elsewhere, 0, 2 * nr_cpu_ids * sizeof(u32));
	mechanism.missed = wakeup_probe.nmissed;
	error = tracepoint_probe_register(sched_switch, switched, NULL);
	if (error)
		return error;
	error = tracepoint_probe_register(sched_migrate_task, migrates, NULL);
	if (error) {
		tracepoint_probe_unregister(sched_switch, switched, NULL);
		return error;
	}
	/* A CPU that is idle now may not switch for long. Interrupts of idle CPUs see the idle task as current. */
	on_each_cpu(look_who_is_idle, NULL, 1);
	WRITE_ONCE(mechanism.on, true);
	return 0;
}

static int mechanism_show(struct seq_file *seq, void *unused)
{
	unsigned int kind, from, to;
	size_t row;
	u32 count;

	for (kind = 0; kind < 2; kind++) {
		for (from = 0; from < nr_cpu_ids; from++) {
			row = kind * nr_cpu_ids + from;
			for (to = 0; to < nr_cpu_ids; to++) {
				count = mechanism.wakeups[row * nr_cpu_ids + to];
				if (count)
					seq_printf(seq, "wakeup %u %u %u %u\n", kind, from, to, count);
				count = atomic_read(mechanism.migrations + row * nr_cpu_ids + to);
				if (count)
					seq_printf(seq, "migration %u %u %u %u\n", kind, from, to, count);
			}
			if (mechanism.busy[row])
				seq_printf(seq, "stacked %u %u %u %u\n", kind, from, mechanism.busy[row], mechanism.elsewhere[row]);
		}
	}
	if (wakeup_probe.nmissed != mechanism.missed)
		seq_printf(seq, "missed %d\n", wakeup_probe.nmissed - mechanism.missed);
	return 0;
}

static int mechanism_open(struct inode *inode, struct file *file)
{
	return single_open(file, mechanism_show, NULL);
}

static ssize_t mechanism_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	unsigned int cpu, llc;
	char word[32];
	int error = 0;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, from, count))
		return -EFAULT;
	word[count] = 0;
	if (sscanf(word, "llc %u %u", &cpu, &llc) == 2 && cpu < nr_cpu_ids)
		mechanism.llc[cpu] = llc;
	else if (!strncmp(word, "start", 5))
		error = mechanism_start();
	else if (!strncmp(word, "stop", 4))
		mechanism_stop();
	else
		error = -EINVAL;
	return error ? error : count;
}

static const struct file_operations mechanism_fops = {
	.owner = THIS_MODULE,
	.open = mechanism_open,
	.read = seq_read,
	.write = mechanism_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static void mechanism_free(void)
{
	vfree(mechanism.wakeups);
	vfree(mechanism.migrations);
	vfree(mechanism.busy);
	vfree(mechanism.elsewhere);
	vfree(mechanism.idle);
	vfree(mechanism.llc);
	vfree(costs.places);
}

static int mechanism_allocate(void)
{
	mechanism.wakeups = vzalloc(square() * sizeof(u32));
	mechanism.migrations = vzalloc(square() * sizeof(atomic_t));
	mechanism.busy = vzalloc(2 * nr_cpu_ids * sizeof(u32));
	mechanism.elsewhere = vzalloc(2 * nr_cpu_ids * sizeof(u32));
	mechanism.idle = vzalloc(nr_cpu_ids);
	mechanism.llc = vzalloc(nr_cpu_ids * sizeof(u16));
	costs.places = vzalloc(nr_cpu_ids * sizeof(struct place));
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	if (mechanism.wakeups && mechanism.migrations && mechanism.busy && mechanism.elsewhere && mechanism.idle && mechanism.llc && costs.places)
		return 0;
	mechanism_free();
	return -ENOMEM;
}

static ssize_t costs_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	unsigned int cpu, core, llc, node;
	char word[48], key[16];
	u64 value;
	int error;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, from, count))
		return -EFAULT;
	word[count] = 0;
	if (sscanf(word, "cpu %u %u %u %u", &cpu, &core, &llc, &node) == 4 && cpu < nr_cpu_ids) {
		costs.places[cpu].core = core;
		costs.places[cpu].llc = llc;
		costs.places[cpu].node = node;
		return count;
	}
	if (sscanf(word, "%15s %llu", key, &value) != 2 || value > LONGEST_BURN_NS)
		return -EINVAL;
	if (!strcmp(key, "smt"))
		costs.smt = value;
	else if (!strcmp(key, "core"))
		costs.core = value;
	else if (!strcmp(key, "llc"))
		costs.llc = value;
	else if (!strcmp(key, "node"))
		costs.node = value;
	else if (!strcmp(key, "cold"))
		costs.cold = value;
	else if (!strcmp(key, "cold_after"))
		costs.cold_after = value;
	else if (!strcmp(key, "remote"))
		costs.remote = value;
	else if (!strcmp(key, "sibling"))
		costs.sibling = value;
	else
		return -EINVAL;
	if (!costs.on) {
		if (!sched_switch)
			return -EOPNOTSUPP;
		error = tracepoint_probe_register(sched_switch, costs_switched, NULL);
		if (error)
			return error;
		on_each_cpu(costs_look, NULL, 1);
		costs.on = true;
	}
	return count;
}

static const struct file_operations costs_fops = {
	.owner = THIS_MODULE,
	.write = costs_write,
	.llseek = noop_llseek,
};

static struct dentry *folder;

static int __init busy_init(void)
{
	int error;

	counts = vzalloc(counts_size());
	if (!counts)
		return -ENOMEM;
	error = mechanism_allocate();
	if (error)
		goto free_counts;
	wakeup_probe.maxactive = 2 * nr_cpu_ids;
	error = register_kretprobe(&wakeup_probe);
	if (error) {
		pr_err("topolab_busy: no probe on select_task_rq_fair: %d\n", error);
		goto free_mechanism;
	}
	error = misc_register(&busy_device);
	if (error)
		goto drop_probe;
	folder = debugfs_create_dir("topolab", NULL);
	debugfs_create_file("wakeups", 0600, folder, NULL, &wakeups_fops);
	debugfs_create_file("mechanism", 0600, folder, NULL, &mechanism_fops);
	debugfs_create_file("costs", 0200, folder, NULL, &costs_fops);
	return 0;

drop_probe:
	unregister_kretprobe(&wakeup_probe);
free_mechanism:
	mechanism_free();
free_counts:
	vfree(counts);
	return error;
}

static void __exit busy_exit(void)
{
	debugfs_remove(folder);
	misc_deregister(&busy_device);
	if (costs.on) {
		tracepoint_probe_unregister(sched_switch, costs_switched, NULL);
		tracepoint_synchronize_unregister();
	}
	mechanism_stop();
	unregister_kretprobe(&wakeup_probe);
	mechanism_free();
	vfree(counts);
}

module_init(busy_init);
module_exit(busy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("topolab: modelled work and wakeup counts");
