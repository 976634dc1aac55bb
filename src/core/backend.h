// backend.h: what a backend is. A backend takes a validated Problem and runs it where the operands lie; it checks
// nothing about shapes, and it reports what it cannot do before it writes anything.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/append_problem.h"
#include "core/merge_problem.h"
#include "core/problem.h"
#include "core/quantize_problem.h"

namespace flashtile {

enum class Pass { forward, backward };

// Something that a first call would wait for. Those of equal names are the same.
struct Preparation {
    std::string name;
    std::function<void()> make;  // from any thread
};

// How a plan is to be reported.
struct PlanWishes {
    const char* device_name = nullptr;  // a device by name, which need not be here; null: that of the operands
    bool registers = false;             // with what a compiler says of registers
};

class Backend {
public:
    virtual const char* name() const = 0;
    virtual std::int32_t device_type() const = 0;  // flashtile_device

    // Bytes of workspace a call uses; a caller may bring as much in Execution.
    virtual std::size_t forward_workspace(const Problem&, const Operands&, const Execution&) const = 0;
    virtual std::size_t backward_workspace(const Problem&, const Operands&, const Execution&) const = 0;

    // Each returns what ran, for flashtile_last_run().
    virtual std::string forward(const Problem&, const Operands&, const Execution&) const = 0;
    virtual std::string backward(const Problem&, const Operands&, const Execution&) const = 0;

    // What a pass would run on, as forward and backward say it, or the error that they would throw. Runs nothing.
    virtual std::string would_run(Pass, const Problem&, const Operands&, const Execution&) const = 0;

    // What a pass waits for on its first call and can have made before; beside: whether it writes what a call may leave
    // out: forward lse, backward dbias and dsinks. Throws what the pass would throw where nothing can run it.
    virtual std::vector<Preparation> preparations(Pass, const Problem&, const Operands&, const Execution&,
                                                  bool beside) const = 0;

    // How forward and backward would run, and why so, as JSON for flashtile_plan_report(). Runs nothing. lse is assumed
    // to be asked for, and dbias where there is a bias.
    virtual std::string plan_report(const Problem&, const Operands&, const Execution&, const PlanWishes&) const = 0;

    // Each returns what ran, and takes no workspace.
    virtual std::string merge(const MergeProblem&, const MergeOperands&, const Execution&) const = 0;
    virtual std::string append_kv(const AppendProblem&, const AppendOperands&, const Execution&) const = 0;

    virtual std::string quantize(const QuantizeProblem&, const QuantizeOperands&, const Execution&) const = 0;
    virtual std::string dequantize(const QuantizeProblem&, const QuantizeOperands&, const Execution&) const = 0;

    // Writes a dropout mask to operands.mask. Of the problem only the sizes and the dropout count.
    virtual void dropout_mask(const Problem&, const Operands&, const Execution&) const = 0;

    // Copies from where operands lie to host memory, once the work before is done; for values that must be checked.
    virtual void read(void* to, const void* from, std::size_t bytes, const Execution&) const = 0;

protected:
    ~Backend() = default;  // backends are constants: a call may come as late as a static destructor
};

// The ordered list of backends that this library was built with.
std::array<const Backend*, 2> backends();

// The first backend for a device type, or an UNSUPPORTED error that lists those there are.
const Backend& backend_for(std::int32_t device_type);

}  // namespace flashtile
