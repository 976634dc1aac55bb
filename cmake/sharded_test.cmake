# add_sharded_test(NAME COUNT PROGRAM ARGUMENT...): a GoogleTest program as the tests NAME.1 to NAME.COUNT of ctest, each with
# its share of the program's tests, so that one program keeps several cores at work.
function(add_sharded_test name count)
  foreach(shard RANGE 1 ${count})
    add_test(NAME ${name}.${shard} COMMAND ${ARGN})
    math(EXPR index "${shard} - 1")
    set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 600
                                                     ENVIRONMENT "GTEST_TOTAL_SHARDS=${count};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()
